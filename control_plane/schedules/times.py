"""When a schedule fires: cron expressions in a time zone, or intervals. The same moments for whoever asks.

Nothing here looks at a clock: the next moment follows from the one before it. Where clocks change, cron expressions
are read as Debian's cron reads them: a job of a fixed hour that the change skips runs right after it, and one that
comes twice runs once.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from agentflow.errors import Problem

_MS = 1000


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of `cron` and `every_ms`. Moments lie in [`starts_at_ms`, `ends_at_ms`)."""

    cron: str | None = None
    timezone: str = "UTC"
    every_ms: int | None = None
    offset_ms: int = 0  # of an interval: it fires at whole multiples of `every_ms` since 1970, and so much later
    jitter_ms: int = 0
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    overlap: str = "skip"  # skip, queue or allow: what happens while an earlier one is still under way
    catch_up_ms: int = 60_000  # what was missed for longer than this is not made up for


def problems(spec: Spec) -> list[Problem]:
    found = []
    if (spec.cron is None) == (spec.every_ms is None):
        found.append(
            Problem("Give exactly one of `cron` and `every`.", "For example `cron: 0 8 * * 1-5`, `every: 15m`.")
        )
    if not _is_zone(spec.timezone):
        found.append(
            Problem(f"There is no time zone {spec.timezone!r}.", "Use a name such as `Europe/Berlin`.", path="timezone")
        )
    elif spec.cron is not None:
        try:
            if next(moments(spec, after_ms=_now_like(spec)), None) is None:
                found.append(Problem("It would never fire.", "Look at the days and at `ends_at`.", path="cron"))
        except CronSimError as error:
            hint = "Five fields: minute, hour, day of month, month, day of week; for example `*/15 8-18 * * MON-FRI`."
            found.append(Problem(f"`{spec.cron}` is no cron expression: {error}.", hint, path="cron"))
    if spec.ends_at_ms is not None and spec.ends_at_ms <= (spec.starts_at_ms or 0):
        found.append(Problem("It ends before it starts.", "Put `ends_at` after `starts_at`.", path="ends_at"))
    return found


def _now_like(spec: Spec) -> int:
    """Where to look for a first moment: any will do, the answer is only whether there is one."""
    return spec.starts_at_ms or 0


def moments(spec: Spec, *, after_ms: int) -> Iterator[int]:
    """Every moment later than `after_ms`, soonest first."""
    first_ms = max(after_ms, (spec.starts_at_ms or 0) - 1)
    for at_ms in _cron(spec, first_ms) if spec.cron is not None else _interval(spec, first_ms):
        if spec.ends_at_ms is not None and at_ms >= spec.ends_at_ms:
            return
        yield at_ms


def next_moment(spec: Spec, *, after_ms: int) -> int | None:
    return next(iter(islice(moments(spec, after_ms=after_ms), 1)), None)


def lateness_ms(spec: Spec, schedule: str, at_ms: int) -> int:
    """How much later than its moment it starts: chance that every replica throws alike."""
    if spec.jitter_ms <= 0:
        return 0
    digest = hashlib.blake2b(f"{schedule}/{at_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % spec.jitter_ms


def _cron(spec: Spec, after_ms: int) -> Iterator[int]:
    zone = _zone(spec.timezone)
    last_ms = after_ms
    for moment in CronSim(spec.cron or "", datetime.fromtimestamp(after_ms / _MS, tz=UTC).astimezone(zone)):
        at_ms = round(moment.timestamp() * _MS)
        if at_ms > last_ms:
            last_ms = at_ms
            yield at_ms


def _interval(spec: Spec, after_ms: int) -> Iterator[int]:
    every = spec.every_ms or 1
    at_ms = (after_ms - spec.offset_ms) // every * every + spec.offset_ms
    while True:
        at_ms += every
        if at_ms > after_ms:
            yield at_ms


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _is_zone(name: str) -> bool:
    try:
        _zone(name)
    except (KeyError, OSError, ValueError):  # also a name that is a folder, a path, or nothing
        return False
    return True
