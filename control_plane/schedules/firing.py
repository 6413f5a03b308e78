"""What follows for a schedule when time has passed. Pure: the clock, and what has ended, are given.

A moment is the identity of its execution (`execution_of`), so starting it again changes nothing: whoever dies between
starting and remembering is repeated without harm, and two replicas that both believe to be in charge start one.
"""

import msgspec

from agentflow.ids import ExecutionId, derived_execution
from control_plane.schedules.schedule import Fire, Schedule
from control_plane.schedules.times import lateness_ms, moments

WAITING_MAX = 100  # moments that may wait for an earlier execution to end; more are skipped
_AT_ONCE = 1_000  # moments looked at in one turn; the next turn goes on


class Turn(msgspec.Struct, frozen=True):
    """Start `starts`, in this order, then remember `after`."""

    starts: tuple[int, ...]
    after: Schedule


def execution_of(schedule: Schedule, at_ms: int) -> ExecutionId:
    return derived_execution(at_ms, f"{schedule.tenant}/schedules/{schedule.id}/{at_ms}")


def due_ms(schedule: Schedule) -> int | None:
    """When to look at it again; now, if it has moments that wait for an end."""
    if schedule.progress.waiting:
        return 0
    at_ms = schedule.next_at_ms
    return None if at_ms is None else at_ms + lateness_ms(schedule.spec, schedule.id, at_ms)


def turn(schedule: Schedule, *, now_ms: int, ended: frozenset[ExecutionId]) -> Turn | None:
    """None when nothing has changed. `ended`: of those it believes to be open."""
    spec, progress = schedule.spec, schedule.progress
    still_open = tuple(one for one in progress.open if one not in ended)
    due, missed, next_at_ms = _due(schedule, now_ms)
    starts: list[int] = []
    waiting = list(progress.waiting)
    skipped: list[int] = []
    for at_ms in due:
        if spec.overlap == "allow" or (spec.overlap == "skip" and not still_open and not starts):
            starts.append(at_ms)
        elif spec.overlap == "queue" and len(waiting) < WAITING_MAX:
            waiting.append(at_ms)
        else:
            skipped.append(at_ms)
    if waiting and not still_open and not starts:
        starts.append(waiting.pop(0))
    if not (starts or skipped or missed or next_at_ms != schedule.next_at_ms or waiting != list(progress.waiting)):
        return None
    after = msgspec.structs.replace(
        progress,
        open=still_open,
        waiting=tuple(waiting),
        skipped=progress.skipped + len(skipped),
        missed=progress.missed + missed,
    )
    for at_ms in skipped:
        after = after.with_fire(Fire(at_ms, "skipped", reason="An earlier one was still under way."))
    last_at_ms = due[-1] if due else schedule.last_at_ms
    moved = msgspec.structs.replace(schedule, next_at_ms=next_at_ms, last_at_ms=last_at_ms, progress=after)
    return Turn(tuple(starts), moved)


def started(schedule: Schedule, at_ms: int, execution: ExecutionId | None, reason: str = "") -> Schedule:
    """What it remembers of a start that was made, or refused for a reason."""
    progress = schedule.progress
    if execution is None:
        progress = progress.with_fire(Fire(at_ms, "failed", reason=reason))
    else:
        progress = msgspec.structs.replace(
            progress.with_fire(Fire(at_ms, "started", execution)),
            fired=progress.fired + 1,
            open=(*progress.open, execution)[-WAITING_MAX:] if schedule.spec.overlap != "allow" else (),
        )
    return msgspec.structs.replace(schedule, progress=progress)


def _due(schedule: Schedule, now_ms: int) -> tuple[list[int], int, int | None]:
    """The moments whose time has come, how many were missed for good, and the first that is still to come."""
    spec, first_ms = schedule.spec, schedule.next_at_ms
    if first_ms is None:
        return [], 0, None
    due: list[int] = []
    missed = 0
    for looked_at, at_ms in enumerate(moments(spec, after_ms=first_ms - 1)):
        late_ms = now_ms - at_ms - lateness_ms(spec, schedule.id, at_ms)
        if late_ms < 0 or looked_at >= _AT_ONCE:
            return due, missed, at_ms
        if late_ms > spec.catch_up_ms:
            missed += 1
        else:
            due.append(at_ms)
    return due, missed, None
