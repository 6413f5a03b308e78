"""The one door to celpy: its grammar makes a parse tree, which becomes ours.

Literals are read by `literals`, not by the grammar, whose strings know fewer escapes: before parsing each string is
replaced by a plain one of the same length, so that every place stays what it was.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from celpy.celparser import CELParseError, CELParser
from lark import Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from planners.expressions.engine import Refusal
from planners.expressions.engine_celpy.tree import Call, Has, ListOf, Literal, Logic, Loop, MapOf, Name, Node, Select
from planners.expressions.lexer import Token, tokens, word_at
from planners.expressions.literals import BadLiteral, number, text_or_bytes

_TRUTH = ("true", "false")
DEPTH_MAX = 32  # as Google's parser has it
_MACROS = {"all": 2, "exists": 2, "exists_one": 2, "filter": 2, "map": 2}
_BINARY = {
    "lt": "_<_", "le": "_<=_", "gt": "_>_", "ge": "_>=_", "eq": "_==_", "ne": "_!=_", "in": "@in",
    "add": "_+_", "sub": "_-_", "mul": "_*_", "div": "_/_", "mod": "_%_",
}  # fmt: skip


@cache
def _parser() -> CELParser:
    """Reading its grammar takes a quarter of a second: whoever starts need not wait for that."""
    return CELParser()


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.subject)
        self.refusal = refusal


@lru_cache(maxsize=64)
def parse(text: str) -> Node:
    """Raises `Refused`. Kept for a while: a text is checked, perhaps twice, and then compiled."""
    words = list(tokens(text))
    if _brackets(words) > DEPTH_MAX:
        raise Refused(Refusal("nested", "", 0))
    try:
        tree = _parser().parse(_masked(text, words))
    except CELParseError as error:
        raise Refused(_refusal(text, error.__context__)) from None
    except RecursionError:
        raise Refused(Refusal("nested", "", 0)) from None
    return _Reader(text, words).node(tree, 1)


def _masked(text: str, words: Sequence[Token]) -> str:
    """Strings as plain strings, true and false (which celpy gives no place) as numbers, all of the same length."""
    pieces, done = [], 0
    for before, word in pairwise((None, *words)):
        assert word is not None
        if word.kind == "string":
            mask = f'"{"x" * (len(word.text) - 2)}"'
        elif word.text in _TRUTH and (before is None or before.text != "."):
            mask = "1" * len(word.text)
        else:
            continue
        pieces += [text[done : word.start], mask]
        done = word.end
    return "".join([*pieces, text[done:]])


def _brackets(words: Sequence[Token]) -> int:
    depth = deepest = 0
    for word in words:
        if word.kind == "symbol":
            depth += (word.text in "([{") - (word.text in ")]}")
            deepest = max(deepest, depth)
    return deepest


def _refusal(text: str, error: BaseException | None) -> Refusal:
    if isinstance(error, UnexpectedToken):
        token = error.token
        if token.type == "$END":
            return Refusal("incomplete", "", len(text))
        at = 0 if token.start_pos is None else token.start_pos
        return Refusal("unexpected", word_at(text, at), at)
    if isinstance(error, UnexpectedCharacters):
        place: Any = error.pos_in_stream  # lark declares it as None and sets it to a number
        at = int(place or 0)
        return Refusal("unreadable", word_at(text, at), at)
    return Refusal("other", "The expression is not valid", 0)


class _Reader:
    def __init__(self, text: str, words: Sequence[Token]) -> None:
        self._text = text
        self._words = words
        self._at = {word.start: index for index, word in enumerate(words)}
        self._rules: dict[str, Callable[[Any, int], Node]] = {
            "expr": self._conditional, "conditionalor": self._logic, "conditionaland": self._logic,
            "relation": self._binary, "addition": self._binary, "multiplication": self._binary, "unary": self._unary,
            "member_dot": self._select, "member_dot_arg": self._method, "member_index": self._index,
            "member_object": self._object, "dot_ident_arg": self._function, "ident_arg": self._function,
            "dot_ident": self._name, "ident": self._name, "list_lit": self._list, "map_lit": self._map,
            "literal": self._literal,
        }  # fmt: skip

    def node(self, tree: Any, depth: int) -> Node:
        # A rule with one child stands for the child; the grammar has ten of them above every literal.
        while len(tree.children) == 1 and tree.data in _THROUGH:
            tree = tree.children[0]
        if depth > DEPTH_MAX:
            raise Refused(Refusal("nested", "", 0))
        return self._rules[tree.data](tree, depth)

    def _conditional(self, tree: Any, depth: int) -> Node:
        test, yes, no = tree.children
        at = self._text.find("?", test.meta.end_pos)
        return Call(at, "_?_:_", tuple(self.node(each, depth + 1) for each in (test, yes, no)))

    def _logic(self, tree: Any, depth: int) -> Node:
        rule, terms, ats = tree.data, [], []
        while tree.data == rule and len(tree.children) == 2:
            left, right = tree.children
            ats.append(self._after(left.meta.end_pos).start)
            terms.append(self.node(right, depth + 1))
            tree = left
        terms.append(self.node(tree, depth + 1))
        operator = "_||_" if rule == "conditionalor" else "_&&_"
        return Logic(ats[-1], operator, tuple(reversed(terms)), tuple(reversed(ats)))

    def _binary(self, tree: Any, depth: int) -> Node:
        left, right = tree.children
        function = _BINARY[left.data.partition("_")[2]]
        at = left.meta.end_pos - len(function.strip("_@"))
        return Call(at, function, (self.node(left.children[0], depth + 1), self.node(right, depth + 1)))

    def _unary(self, tree: Any, depth: int) -> Node:
        """Signs in a row undo each other, as in Google's parser: `!!x` is `x`."""
        sign, at, times = tree.children[0].data, tree.meta.start_pos, 0
        while tree.data == "unary" and len(tree.children) == 2 and tree.children[0].data == sign:
            times += 1
            tree = tree.children[1]
        inner = self.node(tree, depth + 1)
        if times % 2 == 0:
            return inner
        return Call(at, "!_" if sign == "unary_not" else "-_", (inner,))

    def _select(self, tree: Any, depth: int) -> Node:
        operand, field = tree.children
        return Select(self._after(operand.meta.end_pos).start, self.node(operand, depth + 1), str(field))

    def _index(self, tree: Any, depth: int) -> Node:
        operand, index = tree.children
        at = self._after(operand.meta.end_pos).start
        return Call(at, "_[_]", (self.node(operand, depth + 1), self.node(index, depth + 1)))

    def _object(self, tree: Any, _depth: int) -> Node:
        raise Refused(Refusal("other", "There are no message types here", tree.meta.start_pos))

    def _function(self, tree: Any, depth: int) -> Node:
        name, args = str(tree.children[0]), self._args(tree)
        at = self._after(tree.children[0].end_pos).start
        if name == "has" and len(args) == 1:
            return self._has(args[0], at, depth)
        return Call(at, name, tuple(self.node(arg, depth + 1) for arg in args))

    def _has(self, arg: Any, at: int, depth: int) -> Node:
        inner = self.node(arg, depth)
        if not isinstance(inner, Select):
            raise Refused(Refusal("other", "has() argument must be a field selection", inner.at))
        return Has(at, inner.operand, inner.field)

    def _method(self, tree: Any, depth: int) -> Node:
        operand, field, args = tree.children[0], tree.children[1], self._args(tree)
        at = self._after(field.end_pos).start
        over = self.node(operand, depth + 1)
        name = str(field)
        if name in _MACROS and (len(args) == 2 or (name == "map" and len(args) == 3)):
            return self._loop(name, over, args, at, depth)
        return Call(at, name, (over, *(self.node(arg, depth + 1) for arg in args)), member=True)

    def _loop(self, kind: str, over: Node, args: Sequence[Any], at: int, depth: int) -> Node:
        variable = self.node(args[0], depth)
        if not isinstance(variable, Name) or variable.absolute:
            raise Refused(Refusal("other", f"{kind}() variable name must be a simple identifier", variable.at))
        bodies = [self.node(arg, depth + 1) for arg in args[1:]]
        give = bodies[-1] if kind == "map" else None
        test = bodies[0] if kind != "map" or len(bodies) == 2 else None
        return Loop(at, kind, over, variable.name, test, give)

    def _name(self, tree: Any, _depth: int) -> Node:
        token = tree.children[0]
        return Name(token.start_pos, str(token), absolute=tree.data == "dot_ident")

    def _list(self, tree: Any, depth: int) -> Node:
        return ListOf(tree.meta.start_pos, tuple(self.node(item, depth + 1) for item in self._args(tree)))

    def _map(self, tree: Any, depth: int) -> Node:
        parts = [self.node(part, depth + 1) for part in self._args(tree)]
        return MapOf(tree.meta.start_pos, tuple(zip(parts[::2], parts[1::2], strict=True)))

    def _literal(self, tree: Any, _depth: int) -> Node:
        token = tree.children[0]
        start = token.start_pos
        if token.type == "NULL_LIT":
            return Literal(start, None, "null")
        signed = str(token).startswith("-")
        word = self._words[self._at[start + signed]]
        if word.text in _TRUTH:
            truth = Literal(word.start, word.text == "true", "bool")
            return Call(start, "-_", (truth,)) if signed else truth
        try:
            if word.kind == "string":
                value = text_or_bytes(word.text)
                return Literal(start, value, "string" if isinstance(value, str) else "bytes")
            if word.end != token.end_pos:
                raise Refused(Refusal("unexpected", self._text[word.end : token.end_pos], word.end))
            found, kind = number(str(token))
        except BadLiteral as bad:
            raise Refused(Refusal("other", bad.message.rstrip("."), start)) from None
        if kind == "uint" and signed:
            return Call(start, "-_", (Literal(start + 1, -found, kind),))
        return Literal(start, found, kind)

    def _args(self, tree: Any) -> list[Any]:
        last = tree.children[-1] if tree.children else None
        return list(last.children) if isinstance(last, Tree) and last.data in ("exprlist", "mapinits") else []

    def _after(self, offset: int) -> Token:
        """The first word that begins at or after an offset."""
        while offset not in self._at:
            offset += 1
        return self._words[self._at[offset]]


_THROUGH = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member", "primary",
     "paren_expr"}
)  # fmt: skip
