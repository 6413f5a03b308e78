"""A checked tree as Python functions over a frame of names, and its results as plain data.

Errors are values to CEL's `&&`, `||`, `all` and `exists`, where one side can decide although the other has none;
here they are exceptions that those four catch.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planners.expressions.engine import (
    ITERATIONS_MAX,
    NO_FIELDS,
    NOT_BOOLEAN,
    NOT_SEARCHED,
    TOO_MANY_ITERATIONS,
    Failure,
    Refusal,
    TypeName,
    no_field,
    no_name,
)  # fmt: skip
from planners.expressions.engine_celpy import times
from planners.expressions.engine_celpy.syntax import Refused, parse
from planners.expressions.engine_celpy.tree import Call, Has, ListOf, Literal, Logic, Loop, MapOf, Name, Node, Select
from planners.expressions.engine_celpy.types import Checker, written
from planners.expressions.engine_celpy.values import (
    BINARY,
    UNARY,
    BoolKey,
    Failed,
    UInt,
    equal,
    type_name,
    unmatched,
)  # fmt: skip

NAME = "celpy"
_Frame = dict[str, Any]
_Function = Callable[[_Frame], Any]
# Not a name that a text can have: how many iterations are left is shared by all frames of an evaluation.
_BUDGET = "@iterations"
_TYPE_NAMES = ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type")
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MISSING = object()


class CompiledTree:
    def __init__(self, function: _Function, kind: str) -> None:
        self.type = kind
        self._function = function

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        try:
            for value in data.values():
                _refuse_foreign(value)
            return _plain(self._function({**data, _BUDGET: [ITERATIONS_MAX]}))
        except Failed as failed:
            return Failure(failed.reason)
        except RecursionError:
            return Failure("a value is nested too deeply")


def compile_text(text: str, variables: Mapping[str, str]) -> CompiledTree | list[Refusal]:
    kind = check_text(text, variables)
    return kind if isinstance(kind, list) else CompiledTree(_function(parse(text), frozenset()), kind)


def check_text(text: str, variables: Mapping[str, str]) -> str | list[Refusal]:
    """The type of a text, or every reason against it: asked for each engine, so that none has rules of its own."""
    try:
        tree = parse(text)
    except Refused as refused:
        return [refused.refusal]
    checker = Checker(variables)
    kind = checker.type_of(tree, {})
    return checker.refusals or written(kind)


def _refuse_foreign(value: Any) -> None:
    """Numbers beyond 64 bits and half characters exist in Python's JSON, but in no CEL value."""
    rest = [value]
    while rest:
        item = rest.pop()
        kind = type(item)
        if kind is str:
            if not item.isascii():
                _refuse_surrogates(item)
        elif kind is int:
            if not _INT_MIN <= item <= _INT_MAX:
                raise Failed("a number is out of range")
        elif kind is list:
            rest += item
        elif kind is dict:
            rest += item.values()
            rest += item.keys()
        elif kind is not float and kind is not bool and item is not None:
            raise Failed("a value is not JSON")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Failed("a text is not Unicode") from None


def _function(node: Node, names: frozenset[str]) -> _Function:
    """`names` are the variables of the macros around the node."""
    match node:
        case Literal(value=value, type=kind):
            constant = UInt(value) if kind == "uint" else value
            return lambda _frame: constant
        case Name():
            return _name(node, names)
        case Select(operand=operand, field=field):
            return _select(_function(operand, names), field)
        case Has(operand=operand, field=field):
            return _has(_function(operand, names), field)
        case Call():
            return _call(node, names)
        case Logic(operator=operator, terms=terms):
            return _logic([_function(term, names) for term in terms], decides=operator == "_||_")
        case ListOf(items=items):
            functions = [_function(item, names) for item in items]
            return lambda frame: [function(frame) for function in functions]
        case MapOf(entries=entries):
            return _map([(_function(key, names), _function(value, names)) for key, value in entries])
        case Loop():
            return _loop(node, names)
    raise AssertionError(node)


def _name(node: Name, names: frozenset[str]) -> _Function:
    name = node.name
    if name in _TYPE_NAMES and name not in names:
        constant = TypeName(name)
        return lambda frame: frame.get(name, constant)

    def read(frame: _Frame) -> Any:
        value = frame.get(name, _MISSING)
        if value is _MISSING:
            raise Failed(no_name(name))
        return value

    return read


def _select(operand: _Function, field: str) -> _Function:
    def select(frame: _Frame) -> Any:
        value = operand(frame)
        if type(value) is not dict:
            raise Failed(NO_FIELDS)
        if field not in value:
            raise Failed(no_field(field))
        return value[field]

    return select


def _has(operand: _Function, field: str) -> _Function:
    def has(frame: _Frame) -> bool:
        value = operand(frame)
        if type(value) is not dict:
            raise Failed(NO_FIELDS)
        return field in value

    return has


def _call(node: Call, names: frozenset[str]) -> _Function:
    functions = [_function(arg, names) for arg in node.args]
    name = node.function
    match name:
        case "_==_":
            left, right = functions
            return lambda frame: equal(left(frame), right(frame))
        case "_!=_":
            left, right = functions
            return lambda frame: not equal(left(frame), right(frame))
        case "_?_:_":
            return _conditional(*functions)
        case "!_":
            return _not(*functions)
        case "@in":
            return _in(*functions)
        case "_[_]":
            return _index(*functions)
    return _unary(name, *functions) if len(functions) == 1 else _binary(name, *functions)


def _unary(name: str, operand: _Function) -> _Function:
    table = UNARY["size" if name == "len" else name]

    def apply(frame: _Frame) -> Any:
        value = operand(frame)
        function = table.get(type(value))
        if function is None:
            raise unmatched(name, value)
        return function(value)

    return apply


def _binary(name: str, left: _Function, right: _Function) -> _Function:
    table = BINARY[name]

    def apply(frame: _Frame) -> Any:
        a, b = left(frame), right(frame)
        function = table.get((type(a), type(b)))
        if function is None:
            raise unmatched(name, a, b)
        return function(a, b)

    return apply


def _conditional(test: _Function, yes: _Function, no: _Function) -> _Function:
    def choose(frame: _Frame) -> Any:
        chosen = test(frame)
        if chosen is True:
            return yes(frame)
        if chosen is False:
            return no(frame)
        raise Failed(NOT_BOOLEAN)

    return choose


def _not(operand: _Function) -> _Function:
    def negate(frame: _Frame) -> bool:
        value = operand(frame)
        if type(value) is not bool:
            raise Failed(NOT_BOOLEAN)
        return not value

    return negate


def _logic(terms: list[_Function], *, decides: bool) -> _Function:
    """`&&` is decided by false, `||` by true, wherever it stands and whatever failed before it."""

    def decide(frame: _Frame) -> bool:
        failed: Failed | None = None
        odd = False  # whether the first is neither true nor false: a failure beside it would be the better reason
        for at, term in enumerate(terms):
            try:
                value = term(frame)
            except _SpentBudget:
                raise
            except Failed as failure:
                failed, odd = failed or failure, False
                continue
            if value is decides:
                return bool(value)
            if at == 0:
                odd = type(value) is not bool
            elif odd or type(value) is not bool:
                failed, odd = failed or Failed(NOT_BOOLEAN), False
        if failed is not None:
            raise failed
        return not decides

    return decide


def _in(item: _Function, collection: _Function) -> _Function:
    def search(frame: _Frame) -> bool:
        wanted, where = item(frame), collection(frame)
        if type(where) is list:
            return any(equal(wanted, each) for each in where)
        if type(where) is not dict or type(wanted) not in (str, int, UInt, float, bool):
            raise Failed(NOT_SEARCHED)
        return _key(wanted) in where

    return search


def _index(collection: _Function, index: _Function) -> _Function:
    def read(frame: _Frame) -> Any:
        where, key = collection(frame), index(frame)
        if type(where) is dict:
            found = where.get(_key(key), _MISSING)
            if found is _MISSING:
                raise Failed(no_field(_key_text(key)))
            return found
        if type(where) is not list:
            raise Failed(f"a value of type {type_name(where)} has no items")
        if type(key) not in (int, UInt) and not (type(key) is float and key.is_integer()):
            raise Failed(f"a list is indexed by a whole number, not by {type_name(key)}")
        if not 0 <= key < len(where):
            raise Failed(f"the list of {len(where)} has no item {int(key)}")
        return where[int(key)]

    return read


def _key(value: Any) -> Any:
    if type(value) is str or type(value) is int:
        return value
    if type(value) is bool:
        return BoolKey(value)
    if type(value) is UInt:
        return int(value)
    if type(value) is float:
        return int(value) if value.is_integer() else value
    raise Failed(f"a value of type {type_name(value)} cannot be a key")


def _key_text(key: Any) -> str:
    if type(key) is UInt:
        return f"{int(key)}u"
    return key if isinstance(key, str) else str(key).lower()


def _map(entries: list[tuple[_Function, _Function]]) -> _Function:
    def build(frame: _Frame) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        twice = False  # known only when all of it is there: whatever fails before has the word
        for key_function, value_function in entries:
            key = key_function(frame)
            if type(key) not in (str, int, bool):
                raise Failed(f"a value of type {type_name(key)} cannot be a key")
            key, value = _key(key), value_function(frame)
            twice = twice or key in built
            built[key] = value
        if twice:
            raise Failed("a key occurs twice in an object")
        return built

    return build


def _loop(node: Loop, names: frozenset[str]) -> _Function:
    over = _function(node.over, names)
    inner = names | {node.variable}
    test = None if node.test is None else _function(node.test, inner)
    if node.give is not None:
        return _listed(over, node.variable, test, _function(node.give, inner))
    assert test is not None
    if node.kind == "filter":
        variable = node.variable
        return _listed(over, variable, test, lambda frame: frame[variable])
    if node.kind == "exists_one":
        return _exists_one(over, node.variable, test)
    return _quantified(over, node.variable, test, decides=node.kind == "exists")


def _frames(collection: Any, variable: str, frame: _Frame) -> Iterator[_Frame]:
    """One frame for each item, the same object each time: nothing keeps it."""
    if type(collection) is dict:
        # Sorted, because a decision must not depend on the order in which somebody wrote an object.
        items = [key.value if isinstance(key, BoolKey) else key for key in sorted(collection, key=_key_order)]
    elif type(collection) is list:
        items = collection
    else:
        raise Failed(f"a value of type {type_name(collection)} has no items")
    inner, budget = dict(frame), frame[_BUDGET]
    for item in items:
        budget[0] -= 1
        if budget[0] < 0:
            raise _Spent
        inner[variable] = item
        yield inner


class _SpentBudget(Failed):
    """Ends the evaluation whatever it stands in: no `||` may outlive it."""


_Spent = _SpentBudget(TOO_MANY_ITERATIONS)


def _quantified(over: _Function, variable: str, test: _Function, *, decides: bool) -> _Function:
    def quantify(frame: _Frame) -> bool:
        failed: Failed | None = None
        for inner in _frames(over(frame), variable, frame):
            try:
                value = test(inner)
            except _SpentBudget:
                raise
            except Failed as failure:
                failed = failed or failure
                continue
            if type(value) is not bool:
                failed = failed or Failed(NOT_BOOLEAN)
            elif value == decides:
                return decides
        if failed is not None:
            raise failed
        return not decides

    return quantify


def _exists_one(over: _Function, variable: str, test: _Function) -> _Function:
    def count(frame: _Frame) -> bool:
        found, failed = 0, None
        for inner in _frames(over(frame), variable, frame):
            try:
                value = test(inner)
            except _SpentBudget:
                raise
            except Failed as failure:
                failed = failure
                continue
            if type(value) is bool:
                found += value
            else:
                failed = Failed(NOT_BOOLEAN)
        if failed is not None:
            raise failed
        return found == 1

    return count


def _listed(over: _Function, variable: str, test: _Function | None, give: _Function) -> _Function:
    def build(frame: _Frame) -> list[Any]:
        built: list[Any] = []
        failed: Failed | None = None
        for inner in _frames(over(frame), variable, frame):
            try:
                wanted = True if test is None else test(inner)
            except _SpentBudget:
                raise
            except Failed as failure:
                failed = failure  # of several tests that fail, the last has the word, as it has with Google's
                continue
            if type(wanted) is not bool:
                failed = Failed(NOT_BOOLEAN)
            elif wanted and failed is None:
                try:
                    built.append(give(inner))
                except _SpentBudget:
                    raise
                except Failed as failure:
                    failed = failure
        if failed is not None:
            raise failed
        return built

    return build


def _key_order(key: Any) -> tuple[str, Any]:
    return (type(key).__name__, key.value if isinstance(key, BoolKey) else key)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        return {
            key.value if isinstance(key, BoolKey) else key: _plain(value[key]) for key in sorted(value, key=_key_order)
        }
    if kind is UInt:
        return int(value)
    if kind is times.Timestamp or kind is times.Duration:
        return times.plain(value)
    return value
