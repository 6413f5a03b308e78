"""What follows for a schedule when time has passed. Pure: the clock, and what has ended, are given.

A moment is the identity of its execution (`execution_of`), so starting it again changes nothing: whoever dies between
starting and remembering is repeated without harm, and two replicas that both believe to be in charge start one.
"""

from collections.abc import Sequence

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


def with_fires(schedule: Schedule, fires: Sequence[Fire]) -> Schedule:
    """What it remembers of starts that were made or refused."""
    progress = schedule.progress
    for fire in fires:
        progress = progress.with_fire(fire)
        if fire.execution is not None:
            opened = (*progress.open, fire.execution)[-WAITING_MAX:] if schedule.spec.overlap != "allow" else ()
            progress = msgspec.structs.replace(progress, fired=progress.fired + 1, open=opened)
    return msgspec.structs.replace(schedule, progress=progress)


def left_to_tell(newer: Schedule, before: Schedule, fires: Sequence[Fire]) -> Sequence[Fire]:
    """Of `fires`, made from `before`: those that a revision which came between does not know and will not make again.

    Somebody paused it in the middle, say. An execution that is not remembered would not count as under way.
    """
    known = {fire.execution for fire in newer.progress.recent}
    last_ms, newest_ms = before.last_at_ms or 0, newer.last_at_ms or 0

    def is_new(fire: Fire) -> bool:
        again = fire.at_ms in newer.progress.waiting or (
            newer.next_at_ms is not None and newer.next_at_ms <= fire.at_ms
        )
        return not (again or fire.execution in known or last_ms < fire.at_ms <= newest_ms)

    return [fire for fire in fires if fire.outcome == "started" and is_new(fire)]


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
