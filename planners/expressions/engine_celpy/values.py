"""How values behave: arithmetic that overflows, comparison across kinds of numbers, conversion, equality.

Values are Python's (`dict`, `list`, `str`, `bytes`, `float`, `int`, `bool`, None) with `UInt`, `Timestamp`,
`Duration` and `TypeName` beside them. Every function is chosen by the exact types of its arguments, since to Python
`True` is a number and to CEL it is not. Where the language leaves a choice, Google's runtime is followed.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from planners.expressions.engine import NOT_CONVERTED, OVERFLOW, TypeName, no_overload
from planners.expressions.engine_celpy import times
from planners.expressions.engine_celpy.times import Duration, OutOfRange, Timestamp
from planners.expressions.patterns import BadPattern, search

_INT_MIN, _INT_MAX, _UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
_WHOLE = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)
_BROKEN = re.compile(
    r"\s*[-+]?(?:(?P<decimal>(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity)|(?P<nan>nan(?:\(\w*\))?)"
    r"|(?P<hex>0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[-+]?\d+)?))\s*",
    re.ASCII | re.IGNORECASE,
)
_TRUTH = {
    **dict.fromkeys(("true", "True", "TRUE", "t", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "f", "0"), False),
}


class Failed(Exception):
    """An evaluation that gives no value; what `engine.Failure` is to the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UInt(int):
    __slots__ = ()


NoneType = type(None)
NUMBERS = frozenset({int, UInt, float})
_NAMES: dict[type, str] = {
    int: "int", UInt: "uint", float: "double", bool: "bool", str: "string", bytes: "bytes", NoneType: "null_type",
    list: "list", dict: "map", Timestamp: "timestamp", Duration: "duration", TypeName: "type",
}  # fmt: skip


class BoolKey(msgspec.Struct, frozen=True):
    """True or false as the key of a map; to Python `True` and 1 would be the same key."""

    value: bool


def type_name(value: Any) -> str:
    return _NAMES[type(value)]


def _int(value: int) -> int:
    if _INT_MIN <= value <= _INT_MAX:
        return value
    raise Failed(OVERFLOW)


def _uint(value: int) -> UInt:
    if 0 <= value <= _UINT_MAX:
        return UInt(value)
    raise Failed(OVERFLOW)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise Failed("it divides by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _times(function: Callable[[int], Any]) -> Callable[[int], Any]:
    def checked(ns: int) -> Any:
        try:
            return function(ns)
        except OutOfRange:
            raise Failed(OVERFLOW) from None

    return checked


_duration, _timestamp = _times(times.duration), _times(times.timestamp)
_Binary = dict[tuple[type, type], Callable[[Any, Any], Any]]
_ADD: _Binary = {
    (int, int): lambda a, b: _int(a + b),
    (UInt, UInt): lambda a, b: _uint(int(a) + int(b)),
    (float, float): operator.add,
    (str, str): operator.add,
    (bytes, bytes): operator.add,
    (list, list): operator.add,
    (Duration, Duration): lambda a, b: _duration(a.ns + b.ns),
    (Timestamp, Duration): lambda a, b: _timestamp(a.ns + b.ns),
    (Duration, Timestamp): lambda a, b: _timestamp(a.ns + b.ns),
}
_SUBTRACT: _Binary = {
    (int, int): lambda a, b: _int(a - b),
    (UInt, UInt): lambda a, b: _uint(int(a) - int(b)),
    (float, float): operator.sub,
    (Duration, Duration): lambda a, b: _duration(a.ns - b.ns),
    (Timestamp, Timestamp): lambda a, b: _duration(a.ns - b.ns),
    (Timestamp, Duration): lambda a, b: _timestamp(a.ns - b.ns),
}
_MULTIPLY: _Binary = {
    (int, int): lambda a, b: _int(a * b),
    (UInt, UInt): lambda a, b: _uint(int(a) * int(b)),
    (float, float): operator.mul,
}
_DIVIDE: _Binary = {
    (int, int): lambda a, b: _int(_quotient(a, b)),
    (UInt, UInt): lambda a, b: _uint(_quotient(int(a), int(b))),
    (float, float): _divide_doubles,
}
_MODULO: _Binary = {
    (int, int): lambda a, b: _int(_remainder(a, b)),
    (UInt, UInt): lambda a, b: _uint(_remainder(int(a), int(b))),
}


def _comparison(compare: Callable[[Any, Any], bool]) -> _Binary:
    """Numbers of two kinds are compared as Google does: as doubles where one is, by value where both are whole."""
    table: _Binary = {(kind, kind): compare for kind in (int, UInt, float, str, bytes, bool, Timestamp, Duration)}
    for whole in (int, UInt):
        table[whole, float] = lambda a, b: compare(float(a), b)
        table[float, whole] = lambda a, b: compare(a, float(b))
    table[int, UInt] = table[UInt, int] = compare
    return table


def _strings(compare: Callable[[str, str], bool]) -> _Binary:
    return {(str, str): compare}


def _matches(text: str, pattern: str) -> bool:
    try:
        return search(pattern, text)
    except BadPattern:
        raise Failed("the pattern is not valid") from None


BINARY: dict[str, _Binary] = {
    "_+_": _ADD, "_-_": _SUBTRACT, "_*_": _MULTIPLY, "_/_": _DIVIDE, "_%_": _MODULO,
    "_<_": _comparison(operator.lt), "_<=_": _comparison(operator.le),
    "_>_": _comparison(operator.gt), "_>=_": _comparison(operator.ge),
    "contains": _strings(lambda a, b: b in a), "startsWith": _strings(str.startswith),
    "endsWith": _strings(str.endswith), "matches": _strings(_matches),
}  # fmt: skip


def equal(left: Any, right: Any) -> bool:
    a, b = type(left), type(right)
    if a in NUMBERS and b in NUMBERS:
        return bool(float(left) == float(right)) if a is not b and float in (a, b) else bool(left == right)
    if a is not b:
        return False
    if a is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if a is dict:
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def _to_int(value: Any) -> int:
    match value:
        case bool() | int():
            return _int(int(value))
        case float():
            # Google takes the open interval, and 2^63 - 1 is not a double.
            if not _INT_MIN < value < 2.0**63:
                raise Failed(OVERFLOW)
            return int(value)
        case str() if _WHOLE.fullmatch(value) and _INT_MIN <= int(value) <= _INT_MAX:
            return int(value)
        case Timestamp():
            return times.whole_seconds(value)
    raise Failed(NOT_CONVERTED)


def _to_uint(value: Any) -> UInt:
    match value:
        case int():
            return _uint(int(value))
        case float():
            if not 0 <= value < 2.0**64:
                raise Failed(OVERFLOW)
            return UInt(value)
        case str() if _WHOLE.fullmatch(value) and "-" not in value and int(value) <= _UINT_MAX:
            return UInt(int(value))
    raise Failed(NOT_CONVERTED)


def _to_double(value: Any) -> float:
    if not isinstance(value, str):
        return float(value)
    found = _BROKEN.fullmatch(value)
    if found is None:
        raise Failed(NOT_CONVERTED)
    if found["hex"] is None:
        return math.nan if found["nan"] else float(value)
    try:
        return float.fromhex(value)
    except OverflowError:
        return -math.inf if value.strip().startswith("-") else math.inf


def _to_string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _double_text(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise Failed("bytes are not text") from None
        case Timestamp() | Duration():
            return times.written(value)
    return str(int(value)) if isinstance(value, int) else str(value)


def _double_text(value: float) -> str:
    """The shortest digits that give the number back, with an exponent from a million on."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    sign, digits, exponent = ("-" if math.copysign(1, value) < 0 else ""), "0", 0
    if value != 0:
        mantissa, _, power = f"{abs(value)!r}".partition("e")
        whole, _, fraction = mantissa.partition(".")
        shift = len((whole + fraction).rstrip("0")) - len((whole + fraction).lstrip("0").rstrip("0"))
        digits = (whole + fraction).strip("0")
        exponent = len(whole) - 1 - shift + int(power or 0)
    if -5 < exponent < 6:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}{'.' if fraction else ''}{fraction}"
    fraction = digits[1:]
    return f"{sign}{digits[0]}{'.' if fraction else ''}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in _TRUTH:
        raise Failed(NOT_CONVERTED)
    return _TRUTH[value]


def _read_time(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = read(value)
        except OutOfRange:
            raise Failed(OVERFLOW) from None
        if found is None:
            raise Failed(NOT_CONVERTED)
        return found

    return converted


_to_duration, _to_moment = _read_time(times.read_duration), _read_time(times.read_timestamp)


def _to_timestamp(value: Any) -> Any:
    if isinstance(value, int):
        try:
            return times.from_seconds(value)
        except OutOfRange:
            raise Failed(OVERFLOW) from None
    return _to_moment(value)


def _of(kinds: Iterable[type], function: Callable[[Any], Any]) -> dict[type, Callable[[Any], Any]]:
    return dict.fromkeys(kinds, function)


_MOMENT_PARTS = (
    "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
    "getHours", "getMinutes", "getSeconds", "getMilliseconds",
)  # fmt: skip


def _part(name: str) -> dict[type, Callable[[Any], Any]]:
    kinds = (Timestamp, Duration) if _MOMENT_PARTS.index(name) > 5 else (Timestamp,)
    return _of(kinds, lambda value: times.part(value, name))


UNARY: dict[str, dict[type, Callable[[Any], Any]]] = {
    "-_": {int: lambda a: _int(-a), float: operator.neg},
    "size": _of((str, bytes, list, dict), len),
    "int": _of((int, UInt, float, str, bool, Timestamp), _to_int),
    "uint": _of((int, UInt, float, str), _to_uint),
    "double": _of((int, UInt, float, str), _to_double),
    "string": _of((int, UInt, float, str, bool, bytes, Timestamp, Duration), _to_string),
    "bytes": {bytes: lambda a: a, str: str.encode},
    "bool": _of((bool, str), _to_bool),
    "timestamp": _of((int, str, Timestamp), _to_timestamp),
    "duration": _of((str, Duration), _to_duration),
    "type": _of(_NAMES, lambda a: TypeName(type_name(a))),
    "dyn": _of(_NAMES, lambda a: a),
    **{name: _part(name) for name in _MOMENT_PARTS},
}  # fmt: skip


def unmatched(function: str, *args: Any) -> Failed:
    return Failed(no_overload(function, [type_name(arg) for arg in args]))
