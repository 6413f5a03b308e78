"""The one door to the JSONPath library: its parser makes the query, the search is ours.

Ours because every search has a budget of values it may look at (`$..*..*` grows without end), because patterns run on
RE2, and because true is not 1. Nodes are (location, value) pairs; a location is a chain of keys, written out as a
normalized path only when somebody asks for the result.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from iregexp_check import check as is_iregexp
from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    FilterExpressionLiteral,
    FilterQuery,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
    RelativeFilterQuery,
)  # fmt: skip
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import (
    FilterSelector,
    IndexSelector,
    JSONPathSelector,
    NameSelector,
    SliceSelector,
    WildcardSelector,
)  # fmt: skip
from jsonpath_rfc9535.serialize import canonical_string

from agentflow import limits
from agentflow.contracts.claims import within
from planners.expressions import patterns

_ENVIRONMENT = JSONPathEnvironment()
_CHARS_PER_UNIT = 64
_BRACKETS_MAX = 32
_OUTSIDE = {".": "[^\\n\\r]", "^": "\\^", "$": "\\$"}
NOTHING: Any = object()  # no value at all, which is not null
_Location = tuple[Any, ...]  # (location of the parent, key), or empty at the root
_Node = tuple[_Location, Any]
_Select = Callable[[_Node, "_Search"], Iterator[_Node]]
_Value = Callable[[Any, "_Search"], Any]
_Test = Callable[[Any, "_Search"], bool]


class BadPath(Exception):
    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.hint, self.offset = message, hint, offset


class Exhausted(Exception):
    """A search looked at as many values as one may."""


class _Search:
    """One evaluation: the document, and how much may still be looked at."""

    __slots__ = ("left", "root")

    def __init__(self, root: Any) -> None:
        self.root = root
        self.left = limits.JSONPATH_VALUES_MAX

    def spend(self, units: int = 1) -> None:
        self.left -= units
        if self.left < 0:
            raise Exhausted


class Query:
    def __init__(self, segments: Sequence[Any], start: int, *, is_singular: bool, reads_root: bool) -> None:
        self.is_singular = is_singular
        self.reads_root = reads_root  # a filter inside asks about `$` again
        self.names = tuple((name, start + offset) for name, offset in _leading_names(segments))
        self._steps = [_segment(segment) for segment in segments]

    def find(self, document: Any) -> list[tuple[str, Any]]:
        """Every match with its normalized path, in order; a match may hold claims. Raises `Exhausted`, `ValueLost`."""
        return [(_normalized(location), value) for location, value in _found(self._steps, document, _Search(document))]


def parse_query(text: str) -> Query:
    """Raises `BadPath`."""
    written = text.strip()
    before = len(text) - len(text.lstrip())
    if _depth(written) > _BRACKETS_MAX:
        raise BadPath("The path is nested too deeply.", "Split it.", before)
    try:
        query = _ENVIRONMENT.compile(written)
    except JSONPathError as error:
        said = str(error.args[0]) if error.args else "it cannot be read"
        offset = before + (0 if error.token is None else error.token.index)
        hint = "Paths follow RFC 9535."
        if text[offset : offset + 1] in ("=", "!", "<", ">", "&", "|") and "[" not in text[:offset]:
            hint = "A path only finds. Compare in CEL (`output.score > 1`) or in a filter (`$.output[?@.score > 1]`)."
        raise BadPath(f"The path is not valid: {said}.", hint, min(offset, len(text))) from None
    except RecursionError:
        raise BadPath("The path is nested too deeply.", "Split it.", before) from None
    try:
        return Query(query.segments, before, is_singular=query.singular_query(), reads_root="$" in written[1:])
    except BadPath as bad:
        raise BadPath(bad.message, bad.hint, before + bad.offset) from None


def _depth(text: str) -> int:
    depth = deepest = 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        deepest = max(deepest, depth)
    return deepest


def _leading_names(segments: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    """The names that a query begins with, each with its offset: what can be checked before there is a document."""
    names = []
    for segment in segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment) or len(segment.selectors) != 1:
            break
        selector = segment.selectors[0]
        if not isinstance(selector, NameSelector):
            break
        names.append((selector.name, selector.token.index))
    return tuple(names)


def _found(steps: Sequence[_Select], value: Any, search: _Search) -> list[_Node]:
    nodes: list[_Node] = [((), value)]
    for step in steps:
        nodes = [found for node in nodes for found in step(node, search)]
    return nodes


def _segment(segment: Any) -> _Select:
    selects = [_selector(selector) for selector in segment.selectors]

    def child(node: _Node, search: _Search) -> Iterator[_Node]:
        for select in selects:
            for found in select(node, search):
                search.spend()
                yield found

    if not isinstance(segment, JSONPathRecursiveDescentSegment):
        return child

    def descend(node: _Node, search: _Search) -> Iterator[_Node]:
        for visited in _descendants(node, search):
            yield from child(visited, search)

    return descend


def _descendants(node: _Node, search: _Search) -> Iterator[_Node]:
    """The node and all below it, parents before children, children in their order."""
    rest = [node]
    while rest:
        visited = rest.pop()
        search.spend()
        yield visited
        rest.extend(child for child in reversed(list(_children(visited))) if isinstance(within(child[1]), dict | list))


def _children(node: _Node) -> Iterator[_Node]:
    location, value = node[0], within(node[1])
    if isinstance(value, dict):
        return (((location, key), item) for key, item in value.items())
    if isinstance(value, list):
        return (((location, at), item) for at, item in enumerate(value))
    return iter(())


def _selector(selector: JSONPathSelector) -> _Select:
    match selector:
        case NameSelector(name=name):
            return lambda node, _search: _named(node, name)
        case IndexSelector(index=index):
            return lambda node, _search: _indexed(node, index)
        case SliceSelector():
            return lambda node, _search: _sliced(node, selector.slice)
        case WildcardSelector():
            return lambda node, _search: _children(node)
        case FilterSelector(expression=expression):
            test = _test(expression.expression)
            return lambda node, search: _filtered(node, test, search)
    raise AssertionError(selector)


def _named(node: _Node, name: str) -> Iterator[_Node]:
    location, value = node[0], within(node[1])
    if isinstance(value, dict) and name in value:
        yield (location, name), value[name]


def _indexed(node: _Node, index: int) -> Iterator[_Node]:
    location, value = node[0], within(node[1])
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield (location, index % len(value)), value[index]


def _sliced(node: _Node, chosen: slice) -> Iterator[_Node]:
    location, value = node[0], within(node[1])
    if isinstance(value, list) and chosen.step != 0:
        for at in range(*chosen.indices(len(value))):
            yield (location, at), value[at]


def _filtered(node: _Node, test: _Test, search: _Search) -> Iterator[_Node]:
    for child in _children(node):
        search.spend()
        if test(child[1], search):
            yield child


def _test(expression: Any) -> _Test:
    """A logical expression; each part is only asked if it can still decide."""
    match expression:
        case LogicalExpression(left=left, operator="&&", right=right):
            first, second = _test(left), _test(right)
            return lambda current, search: first(current, search) and second(current, search)
        case LogicalExpression(left=left, right=right):
            first, second = _test(left), _test(right)
            return lambda current, search: first(current, search) or second(current, search)
        case PrefixExpression(right=right):
            inner = _test(right)
            return lambda current, search: not inner(current, search)
        case ComparisonExpression(left=left, operator=operator, right=right):
            return _comparison(_value(left), operator, _value(right))
        case FilterQuery():
            nodes = _nodes(expression)
            return lambda current, search: bool(nodes(current, search))
        case FunctionExtension():
            value = _function(expression)
            return lambda current, search: value(current, search) is True
    raise _misplaced(expression)


def _value(expression: Any) -> _Value:
    """A comparable: a literal, what a singular query finds, or what a function gives."""
    match expression:
        case FilterExpressionLiteral(value=value):
            return lambda _current, _search: value
        case FilterQuery():
            nodes = _nodes(expression)

            def single(current: Any, search: _Search) -> Any:
                found = nodes(current, search)
                return within(found[0][1]) if len(found) == 1 else NOTHING

            return single
        case FunctionExtension():
            return _function(expression)
    raise _misplaced(expression)


def _misplaced(expression: Any) -> BadPath:
    """The library's parser lets a literal pass as a test in a few places; the RFC does not."""
    message = "The path is not valid: a filter tests or compares something."
    return BadPath(message, "Compare with `==`, or ask for a path: `?@.name`.", expression.token.index)


def _nodes(query: Any) -> Callable[[Any, _Search], list[_Node]]:
    steps = [_segment(segment) for segment in query.query.segments]
    if isinstance(query, RelativeFilterQuery):
        return lambda current, search: _found(steps, current, search)
    return lambda _current, search: _found(steps, search.root, search)


def _function(expression: Any) -> _Value:
    name, args = expression.name, expression.args
    if name in ("count", "value"):
        nodes = _nodes(args[0])
        return (lambda c, s: len(nodes(c, s))) if name == "count" else (lambda c, s: _only(nodes(c, s)))
    values = [_value(arg) for arg in args]
    if name == "length":
        return lambda current, search: _length(values[0](current, search))
    matches = patterns.full_match if name == "match" else patterns.search
    return lambda current, search: _matches(matches, values[0](current, search), values[1](current, search), search)


def _only(nodes: Sequence[_Node]) -> Any:
    return within(nodes[0][1]) if len(nodes) == 1 else NOTHING


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | list | dict) else NOTHING


def _matches(function: Callable[[str, str], bool], text: Any, pattern: Any, search: _Search) -> bool:
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    search.spend(16 * (1 + len(text) // _CHARS_PER_UNIT) + len(pattern) // 4)
    try:
        return is_iregexp(pattern) and function(_re2(pattern), text)
    except (patterns.BadPattern, UnicodeEncodeError):
        return False


def _re2(pattern: str) -> str:
    """An I-Regexp (RFC 9485) in RE2's notation: its dot stops at both kinds of line end, and it has no anchors."""
    written, escaped, inside = [], False, False
    for sign in pattern:
        if escaped:
            escaped = False
        elif sign == "\\":
            escaped = True
        elif sign in "[]":
            inside = sign == "["
        elif not inside:
            sign = _OUTSIDE.get(sign, sign)  # noqa: PLW2901
        written.append(sign)
    return "".join(written)


def _comparison(left: _Value, operator: str, right: _Value) -> _Test:
    compare: Callable[[Any, Any, _Search], bool] = {
        "==": _equal,
        "!=": lambda a, b, s: not _equal(a, b, s),
        "<": _less,
        ">": lambda a, b, s: _less(b, a, s),
        "<=": lambda a, b, s: _less(a, b, s) or _equal(a, b, s),
        ">=": lambda a, b, s: _less(b, a, s) or _equal(a, b, s),
    }[operator]
    return lambda current, search: compare(left(current, search), right(current, search), search)


def _equal(left: Any, right: Any, search: _Search) -> bool:
    left, right = within(left), within(right)
    search.spend(1 + (min(len(left), len(right)) // _CHARS_PER_UNIT if _texts(left, right) else 0))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b, search) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key], search) for key, value in left.items())
    return bool(left == right)


def _less(left: Any, right: Any, search: _Search) -> bool:
    search.spend()
    if _texts(left, right):
        return bool(left < right)
    return _is_number(left) and _is_number(right) and bool(left < right)


def _texts(left: Any, right: Any) -> bool:
    return isinstance(left, str) and isinstance(right, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _normalized(location: _Location) -> str:
    keys = []
    while location:
        location, key = location
        keys.append(f"[{key}]" if isinstance(key, int) else f"[{canonical_string(key)}]")
    return "$" + "".join(reversed(keys))
