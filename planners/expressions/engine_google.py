"""The one door to Google's CEL runtime (C++): compile and evaluate, its words turned into ours.

The runtime walks maps in an order that differs from process to process, so `map` and `filter` are given the sorted
keys instead (`walked_`), and objects in results are sorted too: the same data must give the same list everywhere, and
the same words where it gives none.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from planners.expressions.engine import (
    NO_FIELDS,
    NOT_BOOLEAN,
    NOT_CONVERTED,
    NOT_SEARCHED,
    OBJECT,
    OVERFLOW,
    TOO_MANY_ITERATIONS,
    Failure,
    Refusal,
    TypeName,
    no_field,
    no_name,
    no_overload,
)  # fmt: skip
from planners.expressions.lexer import (
    LIST_BUILDERS,
    MACROS,
    Token,
    closing,
    offset_of,
    receiver_start,
    tokens,
    word_at,
)

NAME = "google"
_WALK = "walked_"
_KEY_OF = "key_"
_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?=\n \| |\nERROR: |\s*\[[A-Z_]+\]\s*$)", re.DOTALL)
_UNDECLARED = re.compile(r"undeclared reference to '\.?([^']*)'")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '(.*)'", re.DOTALL)
_UNEXPECTED = re.compile(r"Syntax error: (?:mismatched|extraneous) input '(.*?)' expecting", re.DOTALL)
_MISSING = re.compile(r"Syntax error: missing '.*' at '(.*)'", re.DOTALL)
_NOT_VIABLE = re.compile(r"Syntax error: no viable alternative at input '(.*)'", re.DOTALL)
_UNREADABLE = re.compile(r"Syntax error: token recognition error at: '(.*)'", re.DOTALL)
# A macro is checked as what it stands for; a person wrote a test that is no test.
_TEST = re.compile(r"\((\w+), (?:int, int|list\(.*)\)")
_MESSAGES = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}

_STATUS = re.compile(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$")
_NO_KEY = re.compile(r'Key not found in map : "?(.*?)"?$', re.DOTALL)
_NO_NAME = re.compile(r'No value with name "(.*)" found in Activation')
_NO_OVERLOAD = re.compile(r"No matching overloads found : (?:\((.*?)\)\.)?([^()]*?)(?:\((.*)\))?$")
_INDEX = re.compile(r"Index error: index=(-?\d+) size=(\d+)")
_INDEX_TYPE = re.compile(r"Index error: expected integer type, got (\w+)")
_CONTAINER = re.compile(r"Invalid container type: '(\w+)'")
_KEY = re.compile(r"Invalid map key type: '(\w+)'")
_SENTENCES = {
    "SELECT": NO_FIELDS,
    "Iteration budget": TOO_MANY_ITERATIONS,
    "divide by zero": "it divides by zero",
    "modulus by zero": "it divides by zero",
    "overflow": OVERFLOW,
    "out of range": OVERFLOW,
    "int64 range": OVERFLOW,
    "uint64 range": OVERFLOW,
    "maximum allowed duration": OVERFLOW,
    "minimum allowed duration": OVERFLOW,
    "malformed UTF-8": "bytes are not text",
    "conver": NOT_CONVERTED,
    "duplicate key": "a key occurs twice in an object",
    "invalid regular expression": "the pattern is not valid",
    "surrogates": "a text is not Unicode",
}
# The runtime's words for a value that is not what a place asks for, when it does not say which it was.
_PLACES = {"_&&_": NOT_BOOLEAN, "_||_": NOT_BOOLEAN, "!_": NOT_BOOLEAN, "<jump_condition>": NOT_BOOLEAN,
           "@in": NOT_SEARCHED, "@not_strictly_false": NOT_BOOLEAN}  # fmt: skip


def _sized(name: str) -> Any:
    kinds = enumerate(("list<dyn>", "map<dyn, dyn>", "string", "bytes"))
    return cel.FunctionDecl(
        name, [cel.Overload(f"{name}_{at}", cel.Type.INT, [cel.Type(kind)], False) for at, kind in kinds]
    )


def _walking() -> Any:
    items, keys = cel.Type("list<dyn>"), cel.Type("map<dyn, dyn>")
    return cel.FunctionDecl(
        _WALK,
        [
            cel.Overload("walked_list", items, [items], False, lambda value: value),
            cel.Overload("walked_map", items, [keys], False, lambda value: sorted(value, key=_key_order)),
        ],
    )


def _keys() -> Any:
    """Text, whole numbers, true and false as they are; anything else has no overload, and so is no key."""
    kinds = (cel.Type.STRING, cel.Type.INT, cel.Type.BOOL)
    return cel.FunctionDecl(
        _KEY_OF,
        [cel.Overload(f"key_{at}", kind, [kind], False, lambda value: value) for at, kind in enumerate(kinds)],
    )


def _key_order(key: Any) -> tuple[str, Any]:
    return (type(key).__name__, key)


# `len` is only declared, to be checked: the text that is evaluated says `size`. `walked_` is for our own texts only.
_FUNCTIONS = {False: [_sized("len"), _keys()], True: [_sized("len"), _keys(), _walking()]}


class CompiledText:
    def __init__(self, expression: Any, kind: str, in_order: Any = None) -> None:
        """`in_order` is the same expression, slower, walking every map in the order of its keys."""
        self.type = kind
        self._eval = expression.eval
        self._in_order = None if in_order is None else in_order.eval

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        result = self._outcome(self._eval, data)
        if self._in_order is not None and isinstance(result, Failure):
            # Whether `all` or `exists` fails does not depend on the order, but which of several reasons it gives does.
            return self._outcome(self._in_order, data)
        return result

    def _outcome(self, evaluate: Any, data: Mapping[str, Any]) -> Any:
        try:
            result = evaluate(data=data)
            kind = result.type()
            if kind == _BOOL:
                return result.value()
            if kind == _FAILED:
                return Failure(_reason(str(result.value())))
            return _plain(result)
        except (RuntimeError, ValueError, TypeError) as error:  # a spent budget, or a value the engine cannot hold
            return Failure(_reason(str(error)))
        except RecursionError:
            return Failure("a value is nested too deeply")


_BOOL, _FAILED, _NULL = cel.Type.BOOL, cel.Type.ERROR, cel.Type.NULL


def _plain(value: Any) -> Any:
    """The engine's value as Python's.

    Its own `plain_value()` must not be used: version 0.1.3 gives back a null without counting the reference to
    `None`, and before Python 3.12 enough of those end the process. A test holds us to it.
    """
    if value.type() == _NULL:
        return None
    held = value.value()
    if isinstance(held, list):
        return [_plain(item) for item in held]
    if isinstance(held, dict):
        return {key: _plain(held[key]) for key in sorted(held, key=_key_order)}
    if isinstance(held, cel.Type):
        name = held.name().lower().partition("<")[0]
        return TypeName("null_type" if name == "null" else name)
    return held


@lru_cache(maxsize=256)
def _environment(variables: tuple[tuple[str, str], ...], *, walking: bool = False) -> Any:
    """Kept, because the first use of an environment costs twenty times what the next ones do (400 µs to 25)."""
    return cel.NewEnv(variables={name: cel.Type(kind) for name, kind in variables}, functions=_FUNCTIONS[walking])


def compile_text(text: str, variables: Mapping[str, str]) -> CompiledText | list[Refusal]:
    declared = tuple(sorted(variables.items()))
    text = _with_keys(text)
    result = _compiled(declared, text)
    if isinstance(result, list) and (reminded := _reminded(text)) != text:
        # Its checker takes the type of something dynamic from what stands around it: `(b ? 0 : m['a']).x` is then said
        # to read a field of a number. `dyn(…)` around all that may be dynamic reminds it.
        again = _compiled(declared, reminded)
        return result if isinstance(again, list) else again
    return result


def _reminded(text: str) -> str:
    """The text with what a macro walks, each item that is read, and each literal list and object given to `dyn`."""
    walked, _ = _wrapped(text, MACROS, "dyn")
    words = list(tokens(walked))
    opened, closed = [], []
    for at, word in enumerate(words):
        if word.kind != "symbol" or word.text not in "[{" or (end := closing(words, at)) is None:
            continue
        before = words[at - 1] if at else None
        indexed = word.text == "[" and before is not None and _ends_operand(before)
        opened.append(receiver_start(words, at) if indexed else word.start)
        closed.append(words[end].end)
    pieces, done = [], 0
    for at, mark in sorted([(at, ")") for at in closed] + [(at, "dyn(") for at in opened]):
        pieces += [walked[done:at], mark]
        done = at
    return "".join([*pieces, walked[done:]])


def _with_keys(text: str) -> str:
    """The text with each key of an object that is not written out given to `key_`."""
    if "{" not in text:
        return text
    words = list(tokens(text))
    marks = []
    for at, word in enumerate(words):
        if word.text == "{" and word.kind == "symbol":
            for first, last in _key_spans(words, at):
                if first != last or words[first].kind == "name":
                    marks += [(words[first].start, f"{_KEY_OF}("), (words[last].end, ")")]
    pieces, done = [], 0
    for at, mark in sorted(marks, key=lambda it: it[0]):
        pieces += [text[done:at], mark]
        done = at
    return "".join([*pieces, text[done:]])


def _key_spans(words: Sequence[Token], brace: int) -> Iterator[tuple[int, int]]:
    """The first and the last word of each key of the object that begins at a brace."""
    depth, choices, first = 0, 0, brace + 1
    for at in range(brace + 1, closing(words, brace) or len(words)):
        word = words[at]
        if word.kind != "symbol":
            continue
        if depth == 0 and word.text == "?":
            choices += 1
        elif depth == 0 and word.text == ":" and choices:
            choices -= 1
        elif depth == 0 and word.text == ":" and first < at:
            yield first, at - 1
            first = len(words)  # until the next entry
        elif depth == 0 and word.text == ",":
            first = at + 1
        depth += (word.text in "([{") - (word.text in ")]}")


def _ends_operand(word: Token) -> bool:
    return word.text in (")", "]", "}") if word.kind == "symbol" else word.text != "in"


def _compiled(declared: tuple[tuple[str, str], ...], text: str) -> CompiledText | list[Refusal]:
    try:
        expression = _environment(declared).compile(text)
        kind = _type_name(expression)
        walked, marks = _wrapped(text, MACROS, _WALK)
        if not marks:
            return CompiledText(expression, kind)
        walking = _environment(declared, walking=True)
        in_order = walking.compile(walked)
        builders, marks = _wrapped(text, LIST_BUILDERS, _WALK)
        return CompiledText(walking.compile(builders) if marks else expression, kind, in_order)
    except RuntimeError as error:
        words = list(tokens(text))
        found = [
            _refusal(text, words, message, offset_of(text, max(0, int(line)), max(0, int(column))))
            for line, column, message in _ERROR.findall(str(error))
            if "*error*" not in message and "<<nil>>" not in message  # these follow from another
        ]
        return found or [_refusal(text, words, str(error), 0)]


def _type_name(expression: Any) -> str:
    try:
        name: str = expression.return_type().name().lower()
    except RuntimeError:
        return OBJECT  # of a map whose keys cannot be keys; evaluating it says so
    return name


def _wrapped(text: str, macros: Collection[str], function: str) -> tuple[str, list[tuple[int, str]]]:
    """The text with every collection that one of the macros walks given to a function, and what was put where."""
    if not any(f".{macro}" in text for macro in macros):
        return text, []
    words = list(tokens(text))
    opened: dict[int, int] = {}  # offset: how many calls begin there
    closed = []
    for at in range(2, len(words)):
        if words[at].text == "(" and words[at - 1].text in macros and words[at - 2].text == ".":
            start = receiver_start(words, at - 2)
            opened[start] = opened.get(start, 0) + 1
            closed.append(words[at - 2].start)
    marks = sorted([(at, f"{function}(" * count) for at, count in opened.items()] + [(at, ")") for at in closed])
    pieces, done = [], 0
    for at, mark in marks:
        pieces += [text[done:at], mark]
        done = at
    return "".join([*pieces, text[done:]]), marks


def _refusal(text: str, words: Sequence[Token], message: str, offset: int) -> Refusal:
    if found := _UNDECLARED.match(message):
        if text[offset : offset + 1] == "(":
            return Refusal("function", found[1], offset)
        root = found[1].split(".")[0]
        return Refusal("name", root, _name_start(words, root, offset))
    if found := _OVERLOAD.match(message):
        operator, operands = found[1], _shown(found[2])
        if operator == "_?_:_" and text[offset : offset + 1] != "?" and (test := _TEST.fullmatch(operands)):
            operator, operands = "_&&_", f"(bool, {test[1]})"
        return Refusal("overload", operator, offset, operands)
    if found := _UNEXPECTED.match(message) or _MISSING.match(message) or _NOT_VIABLE.match(message):
        if found[1] == "<EOF>" or offset >= len(text):
            return Refusal("incomplete", "", len(text))
        return Refusal("unexpected", word_at(text, offset), offset)
    if _UNREADABLE.match(message):
        return Refusal("unreadable", word_at(text, offset), offset)
    if "recursion" in message:
        return Refusal("nested", "", 0)
    return Refusal("other", _shown(message.strip()), offset)


def _name_start(words: Sequence[Token], root: str, offset: int) -> int:
    """The engine points at the last dot of `x.y.z`; the name that is not known stands before."""
    starts = [word.start for word in words if word.kind == "name" and word.text == root and word.start <= offset]
    return max(starts, default=offset)


def _shown(types: str) -> str:
    for message, name in _MESSAGES.items():
        types = types.replace(message, name)
    return types


def _reason(said: str) -> str:
    said = _STATUS.sub("", said).strip().rstrip(".")
    if found := _NO_KEY.search(said):
        return no_field(found[1])
    if found := _NO_NAME.search(said):
        return no_name(found[1])
    if found := _NO_OVERLOAD.search(said):
        if found[2] in _PLACES:
            return _PLACES[found[2]]
        operands = [kind for part in (found[1], found[3]) if part for kind in part.split(", ")]
        if found[2] == _WALK:
            return _no_items(operands[0])
        if found[2] == _KEY_OF:
            return f"a value of type {_kind(operands[0])} cannot be a key"
        return no_overload(found[2], [_kind(kind) for kind in operands])
    if found := _INDEX.search(said):
        return f"the list of {found[2]} has no item {found[1]}"
    if found := _INDEX_TYPE.search(said):
        return f"a list is indexed by a whole number, not by {_kind(found[1])}"
    if found := _CONTAINER.search(said):
        return _no_items(found[1])
    if found := _KEY.search(said):
        return f"a value of type {_kind(found[1])} cannot be a key"
    return next((ours for theirs, ours in _SENTENCES.items() if theirs in said), said)


def _no_items(kind: str) -> str:
    return f"a value of type {_kind(kind)} has no items"


def _kind(name: str) -> str:
    return {"int64": "int", "uint64": "uint"}.get(name, name)
