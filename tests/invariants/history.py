"""What is left of a deployment once the faults are over: all that the invariants are checked against.

Plain data. `stored` reads it from a real database, the simulation makes it from its model; whoever asked, ran or sent
something adds what it saw. What nobody saw stays None, and is then not judged.
"""

from typing import Any, Literal

import msgspec

from agentflow.execution.events import Event
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, StepPath, TenantId


class Recorded(msgspec.Struct, frozen=True):
    """An event where it lies."""

    position: int  # the order of writing, over all executions
    tenant: TenantId
    execution: ExecutionId
    shard: int
    version: int
    epoch: int
    event: Event


class Listed(msgspec.Struct, frozen=True):
    """An execution as lists and recovery see it."""

    execution: ExecutionId
    tenant: TenantId
    status: Status
    shard: int
    started_at_ms: int
    ended_at_ms: int | None


class Kept(msgspec.Struct, frozen=True):
    """A snapshot of a state."""

    execution: ExecutionId
    version: int
    state: ExecutionState


class Held(msgspec.Struct, frozen=True):
    """A lease as it is now."""

    shard: int
    epoch: int
    holder: str | None
    left_s: float


class Reign(msgspec.Struct, frozen=True):
    """When everything up to a position was written, a shard's epoch was this one: what follows is not older."""

    shard: int
    epoch: int
    position: int


Kind = Literal["start", "signal", "cancel", "terminate", "vars", "answer", "pause", "resume", "retry"]


class Asked(msgspec.Struct, frozen=True):
    """A request of a client, and what came of it. Without an answer it is `unknown`, never failed."""

    kind: Kind
    outcome: Literal["accepted", "refused", "unknown"]
    execution: ExecutionId | None = None  # of a start: the one that was answered
    id: str = ""  # of the request itself; of an answer the path of its task
    key: str | None = None  # of a start: its idempotency key
    body: Any = None
    was_over: bool = False  # the answer said that the execution had ended: nothing more was promised


class Effect(msgspec.Struct, frozen=True):
    """One run of a step, as the outside world saw it."""

    execution: ExecutionId
    path: StepPath
    attempt: int
    key: str
    at_most_once: bool = False


class History(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int  # when it was read: nothing was broken for a while then
    events: tuple[Recorded, ...]
    listed: tuple[Listed, ...] = ()
    snapshots: tuple[Kept, ...] = ()
    leases: tuple[Held, ...] | None = None
    reigns: tuple[Reign, ...] = ()
    asked: tuple[Asked, ...] = ()
    effects: tuple[Effect, ...] | None = None
    sent: frozenset[tuple[ExecutionId, StepPath, int]] | None = None  # attempts that the bus was given
    remembered: tuple[ExecutionState, ...] = ()  # what the owners hold in memory
    bus_forgot: bool = False  # its store was wiped, or what it knows of doubles
    all_end: bool = True  # nothing in it waits for people, or for a moment that is still to come
    healed_at_ms: int | None = None  # since when nothing was broken
    ends_within_ms: int | None = None  # after that
    left_behind: tuple[str, ...] = ()  # processes, files, mounts, tasks that should be gone
