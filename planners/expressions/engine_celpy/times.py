"""Timestamps and durations as whole nanoseconds, read and written as Google's runtime does. UTC only."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "h": 3600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1,
}  # fmt: skip
_DURATION = re.compile(r"([-+]?)((?:(?:\d+\.?\d*|\.\d+)(?:h|ms|us|ns|m|s))+|0)", re.ASCII)
_PART = re.compile(r"(\d*)\.?(\d*)(h|ms|us|ns|m|s)", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*([-+]?\d+)-(\d{1,2})-(\d{1,2})[Tt](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d+))?(?:[Zz]|([-+])(\d\d)(?::?(\d\d))?)\s*",
    re.ASCII,
)
_DURATION_MAX = 315_576_000_000 * _SECOND + _SECOND - 1
_EARLIEST = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * _SECOND
_LATEST = 253_402_300_800 * _SECOND - 1


class OutOfRange(Exception):
    pass


class Duration(msgspec.Struct, frozen=True, order=True):
    ns: int


class Timestamp(msgspec.Struct, frozen=True, order=True):
    ns: int


def duration(ns: int) -> Duration:
    if abs(ns) > _DURATION_MAX:
        raise OutOfRange
    return Duration(ns)


def timestamp(ns: int) -> Timestamp:
    if not _EARLIEST <= ns <= _LATEST:
        raise OutOfRange
    return Timestamp(ns)


def read_duration(text: str) -> Duration | None:
    if text.lstrip("+-") == "inf":
        raise OutOfRange
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    total = 0
    for whole, fraction, unit in _PART.findall(found[2]):
        total += int(whole or "0") * _UNITS[unit]
        if fraction:
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
    return duration(-total if found[1] == "-" else total)


def read_timestamp(text: str) -> Timestamp | None:
    if text.strip() in ("infinite-future", "infinite-past"):
        raise OutOfRange
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
    away = int(found[9] or 0) * 60 + int(found[10] or 0)
    if not 0 < year < 10_000:
        raise OutOfRange
    if second > 60 or int(found[9] or 0) > 23 or int(found[10] or 0) > 59:
        return None
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((moment - _EPOCH) / timedelta(seconds=1)) + (second == 60) - away * (-60 if found[8] == "-" else 60)
    nanos = 0 if second == 60 else int((found[7] or "0")[:9].ljust(9, "0"))
    return timestamp(seconds * _SECOND + nanos)


def written(value: Duration | Timestamp) -> str:
    if isinstance(value, Duration):
        sign = "-" if value.ns < 0 else ""
        return f"{sign}{abs(value.ns) // _SECOND}{_fraction(abs(value.ns) % _SECOND)}s"
    return f"{_moment(value):%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + _fraction(value.ns % _SECOND) + "Z"


def part(value: Duration | Timestamp, name: str) -> int:
    """`getHours` and the like: of a moment its place in the calendar, of a duration all of it in that unit."""
    if isinstance(value, Duration):
        if name == "getMilliseconds":
            return _toward_zero(value.ns, 1_000_000) - _toward_zero(value.ns, _SECOND) * 1000
        return _toward_zero(value.ns, {"getHours": 3600, "getMinutes": 60, "getSeconds": 1}[name] * _SECOND)
    moment = _moment(value)
    parts = {
        "getFullYear": moment.year,
        "getMonth": moment.month - 1,
        "getDate": moment.day,
        "getDayOfMonth": moment.day - 1,
        "getDayOfWeek": moment.isoweekday() % 7,
        "getDayOfYear": moment.timetuple().tm_yday - 1,
        "getHours": moment.hour,
        "getMinutes": moment.minute,
        "getSeconds": moment.second,
        "getMilliseconds": value.ns % _SECOND // 1_000_000,
    }
    return parts[name]


def plain(value: Duration | Timestamp) -> Any:
    if isinstance(value, Duration):
        return timedelta(microseconds=_toward_zero(value.ns, 1000))
    return _moment(value) + timedelta(microseconds=value.ns % _SECOND // 1000)


def whole_seconds(value: Timestamp) -> int:
    return value.ns // _SECOND


def from_seconds(seconds: int) -> Timestamp:
    return timestamp(seconds * _SECOND)


def _moment(value: Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=value.ns // _SECOND)


def _fraction(nanos: int) -> str:
    """In steps of three digits, as many as are needed."""
    if nanos == 0:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if nanos % 1_000_000 == 0 else digits[:6] if nanos % 1000 == 0 else digits)


def _toward_zero(value: int, unit: int) -> int:
    return -(-value // unit) if value < 0 else value // unit
