"""What a schedule is and how far it has come, as storage keeps it and the API shows it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from agentflow.errors import Conflict, Invalid, NotFound, Problem
from agentflow.ids import ExecutionId, TenantId
from control_plane.schedules.times import Spec

RECENT_MAX = 20


class Fire(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one moment."""

    at_ms: int
    outcome: Literal["started", "skipped", "failed"]
    execution: ExecutionId | None = None
    reason: str = ""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    fired: int = 0
    skipped: int = 0  # because an earlier one was still under way
    missed: int = 0  # because nobody was there for longer than the catch-up window
    waiting: tuple[int, ...] = ()  # moments that wait for an earlier execution to end (overlap `queue`)
    open: tuple[ExecutionId, ...] = ()  # started, and not known to have ended
    recent: tuple[Fire, ...] = ()  # newest first

    def with_fire(self, fire: Fire) -> "Progress":
        return msgspec.structs.replace(self, recent=(fire, *self.recent[: RECENT_MAX - 1]))


class Schedule(msgspec.Struct, frozen=True):
    tenant: TenantId
    id: str
    name: str
    workflow: str  # a reference, resolved when it fires
    input: Any
    spec: Spec
    created_at_ms: int
    next_at_ms: int | None  # None while paused, and when it is over
    last_at_ms: int | None = None
    paused_at_ms: int | None = None
    progress: Progress = Progress()
    revision: int = 0


class ScheduleStore(Protocol):
    async def add(self, schedule: Schedule) -> Schedule:
        """Keep it unless its name is taken; answers with what stands under the name now."""
        ...

    async def named(self, tenant: TenantId, name: str) -> Schedule | None: ...

    async def list(self, tenant: TenantId, *, limit: int) -> Sequence[Schedule]: ...

    async def replace(self, schedule: Schedule) -> bool:
        """Put it in the place of the revision before it. False when somebody else was there first."""
        ...

    async def remove(self, tenant: TenantId, id: str) -> bool: ...

    async def active(self) -> Sequence[Schedule]:
        """Of all tenants: those that will fire, or have moments waiting."""
        ...

    async def statuses(self, executions: Sequence[ExecutionId]) -> Mapping[ExecutionId, str]:
        """Where executions stand, of all tenants; those that are gone are left out."""
        ...


class ScheduleNotFound(NotFound):
    code = "AF1230"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no schedule {name!r}.", hint="List them with `af schedule list`.")


class ScheduleTaken(Conflict):
    code = "AF1231"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is a schedule {name!r} already, and it says something else.",
            hint="Delete it first (`af schedule delete`), or choose another name.",
        )


class InvalidSchedule(Invalid):
    code = "AF1232"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"The schedule {name!r} cannot be kept.", hint="Correct the places named.", problems=problems)
