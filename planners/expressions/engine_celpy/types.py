"""The type of a tree, or why it has none: what Google's checker says, for the engine that has no checker.

A type is its name, or for those with parts a tuple: `("list", "int")`, `("map", "string", "dyn")`, `("type", "int")`.
Upper-case names in a signature stand for any type, the same one at each place. `dyn` fits everywhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from planners.expressions.engine import DYN, Refusal
from planners.expressions.engine_celpy.tree import Call, Has, ListOf, Literal, Logic, Loop, MapOf, Name, Node, Select

_Type = Any  # str | tuple: recursive, and built by hand everywhere
_Signature = tuple[tuple[_Type, ...], _Type]
_ERROR = "*error*"
_KEYS = ("string", "int", "bool", DYN, _ERROR)
_LIST_A, _MAP_AB = ("list", "A"), ("map", "A", "B")
_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_TYPE_NAMES = {
    "int": "int", "uint": "uint", "double": "double", "bool": "bool", "string": "string", "bytes": "bytes",
    "list": ("list", DYN), "map": ("map", DYN, DYN), "null_type": "null", "type": "type",
}  # fmt: skip


def _same(*kinds: _Type) -> list[_Signature]:
    return [((kind, kind), kind) for kind in kinds]


def _each(result: _Type, *kinds: _Type) -> list[_Signature]:
    return [((kind,), result) for kind in kinds]


_COMPARED: list[_Signature] = [((kind, kind), "bool") for kind in _ORDERED]
_MOMENTS = ("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear")
_SIZED = ("string", "bytes", _LIST_A, _MAP_AB)
_TEXTS: list[_Signature] = [(("string", "string"), "bool")]
_PARTS = ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
_FUNCTIONS: dict[str, list[_Signature]] = {
    "_==_": [(("A", "A"), "bool")], "_!=_": [(("A", "A"), "bool")],
    "_<_": _COMPARED, "_<=_": _COMPARED, "_>_": _COMPARED, "_>=_": _COMPARED,
    "_+_": [*_same("int", "uint", "double", "string", "bytes", _LIST_A, "duration"),
            (("timestamp", "duration"), "timestamp"), (("duration", "timestamp"), "timestamp")],
    "_-_": [*_same("int", "uint", "double", "duration"), (("timestamp", "timestamp"), "duration"),
            (("timestamp", "duration"), "timestamp")],
    "_*_": _same("int", "uint", "double"), "_/_": _same("int", "uint", "double"), "_%_": _same("int", "uint"),
    "-_": [(("int",), "int"), (("double",), "double")], "!_": [(("bool",), "bool")],
    "_?_:_": [(("bool", "A", "A"), "A")],
    "@in": [(("A", _LIST_A), "bool"), (("A", _MAP_AB), "bool")],
    "_[_]": [((_LIST_A, "int"), "A"), ((_MAP_AB, "A"), "B")],
    "size": _each("int", *_SIZED), "len": _each("int", *_SIZED), "matches": _TEXTS,
    "int": _each("int", "int", "uint", "double", "string", "timestamp", "duration"),
    "uint": _each("uint", "uint", "int", "double", "string"),
    "double": _each("double", "double", "int", "uint", "string"),
    "string": _each("string", "string", "int", "uint", "double", "bool", "bytes", "timestamp", "duration"),
    "bytes": _each("bytes", "bytes", "string"), "bool": _each("bool", "bool", "string"),
    "timestamp": _each("timestamp", "timestamp", "string", "int"),
    "duration": _each("duration", "duration", "string", "int"),
    "dyn": _each(DYN, "A"), "type": [(("A",), ("type", "A"))],
}  # fmt: skip
_METHODS: dict[str, list[_Signature]] = {
    "size": _each("int", *_SIZED), "matches": _TEXTS, "contains": _TEXTS, "startsWith": _TEXTS, "endsWith": _TEXTS,
    **{name: _each("int", "timestamp") for name in _MOMENTS},
    **{name: _each("int", "timestamp", "duration") for name in _PARTS},
}  # fmt: skip


def read(name: str) -> _Type:
    """`map<string, list<int>>` as a type."""
    kind, _, inside = name.partition("<")
    if not inside:
        return name
    parts, depth, begun = [], 0, 0
    inside = inside[:-1] + ","
    for at, sign in enumerate(inside):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            parts.append(read(inside[begun:at].strip()))
            begun = at + 1
    return (kind, *parts)


def written(kind: _Type) -> str:
    """The type as a declaration has it: `list<int>`."""
    return kind if isinstance(kind, str) else f"{kind[0]}<{', '.join(written(part) for part in kind[1:])}>"


class Checker:
    """Checks one tree. `refusals` has every reason against it, in the order of the text."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.refusals: list[Refusal] = []
        self._declared = variables

    def type_of(self, node: Node, names: Mapping[str, _Type]) -> _Type:
        """`names` are the variables of the macros around the node."""
        match node:
            case Literal(type=kind):
                return kind
            case Name() | Select():
                return self._read(node, names)
            case Has(operand=operand):
                self._selected(self.type_of(operand, names), node.at)
                return "bool"
            case Call():
                return self._call(node, names)
            case Logic():
                return self._logic(node, names)
            case ListOf(items=items):
                return ("list", _joined([self.type_of(item, names) for item in items]))
            case MapOf():
                return self._map(node, names)
            case Loop():
                return self._loop(node, names)
        return DYN

    def _read(self, node: Node, names: Mapping[str, _Type]) -> _Type:
        """A name, or fields of one: the longest dotted name that is declared counts."""
        chain, inner = [], node
        while isinstance(inner, Select):
            chain.append(inner)
            inner = inner.operand
        if not isinstance(inner, Name):
            assert isinstance(node, Select)
            return self._selected(self.type_of(node.operand, names), node.at)
        if inner.name in names and not inner.absolute:
            found = names[inner.name]
        else:
            path, known = [inner.name, *(select.field for select in reversed(chain))], 0
            for length in range(len(path), 0, -1):
                if ".".join(path[:length]) in self._declared:
                    known = length
                    break
            if known:
                found = read(self._declared[".".join(path[:known])])
                chain = chain[: len(chain) - known + 1]
            elif inner.name in _TYPE_NAMES:
                found = ("type", _TYPE_NAMES[inner.name])
            else:
                self._refuse("name", inner.name, inner.at)
                return _ERROR
        for select in reversed(chain):
            found = self._selected(found, select.at)
        return found

    def _selected(self, operand: _Type, at: int) -> _Type:
        if operand in (DYN, _ERROR):
            return operand
        if isinstance(operand, tuple) and operand[0] == "map":
            return operand[2]
        message = f"expression of type '{_shown(operand)}' cannot be the operand of a select operation"
        self._refuse("other", message, at)
        return _ERROR

    def _call(self, node: Call, names: Mapping[str, _Type]) -> _Type:
        kinds = [self.type_of(arg, names) for arg in node.args]
        known = (_METHODS if node.member else _FUNCTIONS).get(node.function, [])
        if not any(len(params) == len(kinds) for params, _ in known):
            self._refuse("function", node.function, node.at)
            return _ERROR
        return self._chosen(node.function, known, kinds, node.at)

    def _chosen(self, function: str, known: Sequence[_Signature], kinds: Sequence[_Type], at: int) -> _Type:
        if _ERROR in kinds:
            return _ERROR
        results = []
        for params, result in known:
            bound: dict[str, _Type] = {}
            if len(params) == len(kinds) and all(_fits(p, k, bound) for p, k in zip(params, kinds, strict=True)):
                results.append(_filled(result, bound))
        if not results:
            self._refuse("overload", function, at, f"({', '.join(map(_shown, kinds))})")
            return _ERROR
        return results[0] if all(result == results[0] for result in results) else DYN

    def _logic(self, node: Logic, names: Mapping[str, _Type]) -> _Type:
        kinds = [self.type_of(term, names) for term in node.terms]
        left = kinds[0]
        for kind, at in zip(kinds[1:], node.ats, strict=True):
            self._chosen(node.operator, [(("bool", "bool"), "bool")], (left, kind), at)
            left = "bool"
        return "bool"

    def _map(self, node: MapOf, names: Mapping[str, _Type]) -> _Type:
        keys, values = [], []
        for key, value in node.entries:
            keys.append(self.type_of(key, names))
            values.append(self.type_of(value, names))
            if keys[-1] not in _KEYS:
                # The language has unsigned keys too, and each engine its own mind about when one is another's equal.
                self._refuse("other", f"a value of type {_shown(keys[-1])} cannot be a key", key.at)
        return ("map", _joined(keys), _joined(values))

    def _loop(self, node: Loop, names: Mapping[str, _Type]) -> _Type:
        over = self.type_of(node.over, names)
        if isinstance(over, tuple) and over[0] in ("list", "map"):
            item = over[1]
        else:
            if over not in (DYN, _ERROR):
                message = f"expression of type '{_shown(over)}' cannot be the range of a comprehension"
                self._refuse("other", f"{message} (must be list, map, or dynamic)", node.over.at)
            item = DYN
        inner = {**names, node.variable: item}
        test = "bool" if node.test is None else self.type_of(node.test, inner)
        if test not in ("bool", DYN, _ERROR):
            self._refuse("overload", "_&&_", node.at, f"(bool, {_shown(test)})")
        if node.kind == "map" and node.give is not None:
            return ("list", self.type_of(node.give, inner))
        return ("list", item) if node.kind == "filter" else "bool"

    def _refuse(self, kind: Any, subject: str, at: int, operands: str = "") -> None:
        self.refusals.append(Refusal(kind, subject, at, operands))


def _fits(param: _Type, kind: _Type, bound: dict[str, _Type]) -> bool:
    if isinstance(param, str) and param.isupper():
        before = bound.setdefault(param, kind)
        if kind == DYN:
            bound[param] = DYN
        return DYN in (before, kind) or _fits(before, kind, {}) or _fits(kind, before, {})
    if DYN in (kind, param):
        return True
    if isinstance(param, str) or isinstance(kind, str):
        # A message may be null, and these two are messages to the language.
        return bool(param == kind) or (kind == "null" and param in ("timestamp", "duration"))
    if param[0] == "type":
        return bool(kind[0] == "type")
    return param[0] == kind[0] and all(_fits(p, k, bound) for p, k in zip(param[1:], kind[1:], strict=True))


def _filled(result: _Type, bound: Mapping[str, _Type]) -> _Type:
    if isinstance(result, tuple):
        return (result[0], *(_filled(part, bound) for part in result[1:]))
    return bound.get(result, DYN) if result.isupper() else result


def _joined(kinds: Sequence[_Type]) -> _Type:
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else DYN


def _shown(kind: _Type) -> str:
    """The type as messages have it: `list(int)`."""
    if isinstance(kind, tuple):
        return f"{kind[0]}({', '.join(map(_shown, kind[1:]))})"
    return {"null": "null_type"}.get(kind, str(kind))
