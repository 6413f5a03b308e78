"""What an execution has become, and what follows from that alone. `evolve` folds events into it.

One struct that JSON holds without loss, so it can be stored and continued elsewhere. Nothing in it grows with
history: finished steps leave their newest output by name and a count by key, so the thousandth step costs what
the first one did, however many there are and however much is open (see `frozen_map` and `agenda`).
"""

from enum import StrEnum
from typing import Any

import msgspec

from agentflow.contracts import claims
from agentflow.contracts.step import StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.execution.agenda import Agenda
from agentflow.execution.commands import Command, DispatchStep, OpenTask, StartChild
from agentflow.execution.events import (
    Answered,
    ChildStarted,
    ForkOf,
    Parent,
    Queued,
    SignalReceived,
    StepScheduled,
    TaskOpened,
    WorkflowRef,
)
from agentflow.execution.frozen_map import FrozenMap, from_json
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId

NOTHING: FrozenMap[Any] = FrozenMap()
_EMPTY: Any = msgspec.field(default_factory=lambda: NOTHING)


class Status(StrEnum):
    """A terminated execution is a cancelled one whose fault says `terminated`."""

    NEW = "new"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Waiting(msgspec.Struct, frozen=True):
    """A step between two attempts: the failed one's schedule, and when the next is due."""

    last: StepScheduled
    retry_at_ms: int


class Claimed(msgspec.Struct, frozen=True):
    """Who may make the one call of a step's tool."""

    attempt: int
    id: str
    worker: WorkerId
    undone: bool = False


class Doubt(msgspec.Struct, frozen=True):
    """A step of which nobody can tell whether its call was made."""

    step: StepScheduled
    since_ms: int
    fault: StepFault


class Awaited(msgspec.Struct, frozen=True):
    """Somebody waits for a signal. Whoever waited first is served first."""

    name: str
    since_version: int


class Broken(msgspec.Struct, frozen=True):
    """Where a failed or forked execution is to go on, once somebody retries it, or there is room for it."""

    answered: Answered | None  # the outcome that the program could not go on from
    again: StepScheduled | ChildStarted | None  # what had failed, if that outcome was a failure
    steps: tuple[StepScheduled, ...] = ()
    children: tuple[ChildStarted, ...] = ()
    tasks: tuple[TaskOpened, ...] = ()
    timers: FrozenMap[int] = _EMPTY
    awaited: FrozenMap[Awaited] = _EMPTY
    told: tuple[Answered, ...] = ()  # outcomes that the program has not heard yet


class ExecutionState(msgspec.Struct, frozen=True):
    version: int = 0
    status: Status = Status.NEW
    execution: ExecutionId = ExecutionId("")
    tenant: TenantId = TenantId("")
    workflow: WorkflowRef | None = None
    trace: TraceId = TraceId("")
    input: Any = None
    started_at_ms: int = 0
    ended_at_ms: int | None = None
    deadline_ms: int | None = None
    parent: Parent | None = None
    forked: ForkOf | None = None
    env: dict[str, str] = {}
    priority: int = 0
    queue: Queued | None = None  # also after it began: which counts it belongs to
    begun_at_ms: int = 0  # or began to wait for its turn; later by every pause, so the time-out counts from here

    # What is open. Steps, children and tasks by path; timers and signals by the key that the program gave.
    in_flight: FrozenMap[StepScheduled] = _EMPTY
    waiting: FrozenMap[Waiting] = _EMPTY
    children: FrozenMap[ChildStarted] = _EMPTY
    tasks: FrozenMap[TaskOpened] = _EMPTY
    timers: FrozenMap[int] = _EMPTY
    awaited: FrozenMap[Awaited] = _EMPTY
    claimed: FrozenMap[Claimed] = _EMPTY  # by path; while it is not known that the call was made, or was not
    doubts: FrozenMap[Doubt] = _EMPTY
    due: Agenda = Agenda()

    # What is known.
    visits: FrozenMap[int] = _EMPTY  # how often each key was used, so that no path is used twice
    outputs: FrozenMap[Any] = _EMPTY
    memory: FrozenMap[Any] = _EMPTY
    vars: dict[str, Any] = {}
    kept: tuple[SignalReceived, ...] = ()  # signals nobody has waited for yet, oldest first
    seen: tuple[str, ...] = ()  # ids of the last requests, so that a repeated one changes nothing
    workspace: WorkspaceLeft | None = None  # the newest version that is known

    # How it stands.
    paused_at_ms: int | None = None
    paused_by: str = ""  # the request that asked for it; empty at a breakpoint
    breakpoints: tuple[str, ...] = ()  # keys of the program before which to stop
    stopped_at: str = ""  # the breakpoint it is paused at
    held_by: str = ""  # the budget that it is paused for: it goes on once there is something in that again
    held: FrozenMap[Answered] = _EMPTY  # what ended while paused, in its order: told to the program on resume
    ending: StepFault | None = None  # why the program is undoing its work
    failed: StepScheduled | ChildStarted | None = None  # the last thing that ended badly
    broken: Broken | None = None
    output: Any = None
    fault: StepFault | None = None

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    @property
    def waits(self) -> bool:
        """Whether anything is open that can still move it."""
        return bool(
            self.in_flight or self.waiting or self.timers or self.awaited or self.children or self.tasks or self.doubts
        )


_encoder = msgspec.json.Encoder(enc_hook=claims.refuse_claims)
_decoder = msgspec.json.Decoder(ExecutionState, dec_hook=from_json)


def encode_state(state: ExecutionState) -> bytes:
    """As JSON: the same bytes for the same state, whoever writes it."""
    return claims.encode(_encoder, state)


def decode_state(raw: bytes) -> ExecutionState:
    return claims.decode(_decoder, raw)


def key_of(path: StepPath) -> str:
    """The program's key of a path: `check` of `check~2`. A key holds no `~` (see `Draft`)."""
    return path.partition("~")[0]


def newest_path(state: ExecutionState, key: str) -> StepPath:
    """The path under which `key` was used last: the only one that can be open."""
    return path_of(key, state.visits.get(key) or 1)


def path_of(key: str, visit: int) -> StepPath:
    """A step's identity. A place that is visited again is another step: `check`, `check~2`, …"""
    return StepPath(key if visit == 1 else f"{key}~{visit}")


# Kinds of moments, in the order in which they are dealt with when they fall together.
DUE_RETRY, DUE_TIMEOUT, DUE_TIMER = "r", "s", "t"
_DUE_DIGITS = 15


def due_key(at_ms: int, kind: str, of: str) -> str:
    """Sorts by time; the value beside it is the path or key whose moment it is."""
    return f"{max(0, at_ms):0{_DUE_DIGITS}d}{kind}{of}"


def due_at_ms(key: str) -> int:
    return int(key[:_DUE_DIGITS])


def due_kind(key: str) -> str:
    return key[_DUE_DIGITS]


def pending_commands(state: ExecutionState) -> tuple[Command, ...]:
    """What must have been sent if `state` is true: recovery and the sweeper send it again.

    What was halted is not in here: cancelling is best effort, and whoever still reports is not listened to.
    """
    return (
        *(dispatch(step) for step in state.in_flight.values()),
        *(start_child(child) for child in state.children.values()),
        *(open_task(task) for task in state.tasks.values()),
    )


def dispatch(step: StepScheduled) -> DispatchStep:
    return DispatchStep(
        path=step.path,
        name=step.name,
        attempt=step.attempt,
        agent=step.agent,
        tool=step.tool,
        input=step.input,
        timeout_ms=step.timeout_ms,
        in_doubt=step.in_doubt,
        straight=step.straight,
    )


def start_child(child: ChildStarted) -> StartChild:
    return StartChild(child.path, child.workflow, child.version, child.input)


def open_task(task: TaskOpened) -> OpenTask:
    return OpenTask(task.path, task.task)


def next_wakeup(state: ExecutionState) -> int | None:
    """When `TimeReached` is due next: a timer that needs no table, because the state implies it."""
    if state.ended or state.paused_at_ms is not None:
        return None
    if state.status is Status.QUEUED:
        # Who waits for room as well is told when there is some.
        return None if state.queue is None or state.queue.limited else state.queue.not_before_ms
    first = state.due.first()
    moments = [] if first is None else [due_at_ms(first)]
    if state.deadline_ms is not None:
        moments.append(state.deadline_ms)
    return min(moments, default=None)
