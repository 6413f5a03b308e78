"""What happened, in the past tense. Events are the truth: stored for ever, only ever added to.

The tag of each struct is its stored name and version. A changed shape is a new struct with the next
version beside the old one, so that every log ever written still folds.
"""

from typing import Any, Literal

import msgspec

from agentflow.contracts import claims
from agentflow.contracts.step import StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId


class WorkflowRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one definition an execution is pinned to, by content; and by content, too, the registered tools it names."""

    id: WorkflowId
    name: str
    version: str
    digest: str
    tools: dict[str, str] = {}


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and how soon a failed step is tried again. Delays grow by `multiplier` up to `max_ms`."""

    max_attempts: int = 1
    initial_ms: int = 200
    multiplier: float = 2.0
    max_ms: int = 30_000
    jitter: bool = True  # full jitter: anywhere between nothing and the delay


class Parent(msgspec.Struct, frozen=True):
    """Who started an execution as its child, and waits for its end under `path`."""

    execution: ExecutionId
    path: StepPath
    depth: int  # how many executions stand above the child


class Queued(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an execution that was accepted does not begin at once: its moment has not come, or there is no room for it.

    Room is counted by the shell, over all shards; what is kept here is which counts it belongs to.
    """

    not_before_ms: int | None = None
    workflow_max: int | None = None  # how many executions of its workflow may be under way when it begins, with itself
    of_tenant: bool = False  # it counts among those that its tenant may have under way

    @property
    def limited(self) -> bool:
        return self.of_tenant or self.workflow_max is not None


class ExecutionStarted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.started.v1"):
    at_ms: int
    execution: ExecutionId
    tenant: TenantId
    workflow: WorkflowRef
    input: Any
    trace: TraceId
    deadline_ms: int | None = None
    parent: Parent | None = None
    env: dict[str, str] = {}  # the values that expressions see as `env`, as they were then
    priority: int = 0
    queue: Queued | None = None  # it has not begun: `ExecutionBegun` says when it does


class ExecutionBegun(msgspec.Struct, frozen=True, tag_field="type", tag="execution.begun.v1"):
    """An execution that was queued, at first or when it was retried, has its turn. Its time-out counts from here."""

    at_ms: int


class StepScheduled(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.scheduled.v1"):
    at_ms: int
    path: StepPath
    name: str
    attempt: int
    agent: AgentName
    input: Any
    timeout_ms: int
    tool: str | None = None
    retry: Retry = Retry()
    first_attempt: int = 1  # of those that `retry` counts: later than 1 once a failed execution was taken up again
    lost: int = 0  # attempts that ended with their workers
    in_doubt: bool = False  # an earlier attempt claimed the one call of its tool, and its end is not known
    straight: bool = False  # it may have gone to a worker by no stream: sent again, it is not begun as this attempt


class StepSucceeded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.succeeded.v1"):
    at_ms: int
    path: StepPath
    attempt: int
    output: Any
    worker: WorkerId
    started_at_ms: int
    finished_at_ms: int
    workspace: WorkspaceLeft | None = None  # what it left there; None where it had none


class StepFailed(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.failed.v1"):
    """One attempt failed. With `retry_at_ms` another follows; without, the failure is the step's outcome."""

    at_ms: int
    path: StepPath
    attempt: int
    fault: StepFault
    retry_at_ms: int | None = None
    worker: WorkerId | None = None
    claim_over: bool = False  # what it had claimed was certainly not done, or undone
    workspace: WorkspaceLeft | None = None


class StepHalted(msgspec.Struct, frozen=True, tag_field="type", tag="step.halted.v1"):
    """The program no longer wants it. Whatever its agent still reports is not listened to."""

    at_ms: int
    path: StepPath


class StepExcused(msgspec.Struct, frozen=True, tag_field="type", tag="step.excused.v1"):
    """Its time was over while nobody could be heard, so its silence says nothing: it has its time again."""

    at_ms: int
    path: StepPath
    attempt: int


class StepClaimed(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.claimed.v1"):
    """The one call of its tool is this attempt's. Committed before the call is made."""

    at_ms: int
    path: StepPath
    attempt: int
    worker: WorkerId
    id: str
    undone: bool = False  # a call that fails leaves nothing behind


class StepDoubted(msgspec.Struct, frozen=True, tag_field="type", tag="step.in_doubt.v1"):
    """Nobody can tell whether the claimed call was made. A person says so, or its lost result turns up."""

    at_ms: int
    path: StepPath
    attempt: int
    fault: StepFault


class DoubtSettled(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.settled.v1"):
    """`done`: with `output`, as if it had been reported. `fail`: so. `retry`: it was not done, and is tried again."""

    at_ms: int
    path: StepPath
    resolution: Literal["done", "retry", "fail"]
    output: Any = None
    reason: str = ""


class TimerStarted(msgspec.Struct, frozen=True, tag_field="type", tag="timer.started.v1"):
    at_ms: int
    key: str
    due_ms: int


class TimerFired(msgspec.Struct, frozen=True, tag_field="type", tag="timer.fired.v1"):
    at_ms: int
    key: str


class TimerHalted(msgspec.Struct, frozen=True, tag_field="type", tag="timer.halted.v1"):
    at_ms: int
    key: str


class SignalAwaited(msgspec.Struct, frozen=True, tag_field="type", tag="signal.awaited.v1"):
    at_ms: int
    key: str
    name: str


class SignalReceived(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="signal.received.v1"):
    """`key` is who waited for it. Without one it is kept, until `SignalTaken`."""

    at_ms: int
    id: str
    name: str
    payload: Any
    key: str | None = None


class SignalTaken(msgspec.Struct, frozen=True, tag_field="type", tag="signal.taken.v1"):
    """A kept signal went to the program, which asked for its name under `key`."""

    at_ms: int
    id: str
    key: str


class SignalHalted(msgspec.Struct, frozen=True, tag_field="type", tag="signal.halted.v1"):
    at_ms: int
    key: str


class ChildStarted(msgspec.Struct, frozen=True, tag_field="type", tag="child.started.v1"):
    at_ms: int
    path: StepPath
    workflow: str
    version: str
    input: Any


class ChildEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="child.ended.v1"):
    at_ms: int
    path: StepPath
    output: Any = None
    fault: StepFault | None = None


class ChildHalted(msgspec.Struct, frozen=True, tag_field="type", tag="child.halted.v1"):
    at_ms: int
    path: StepPath


class TaskOpened(msgspec.Struct, frozen=True, tag_field="type", tag="task.opened.v1"):
    at_ms: int
    path: StepPath
    task: dict[str, Any]


class TaskAnswered(msgspec.Struct, frozen=True, tag_field="type", tag="task.answered.v1"):
    at_ms: int
    path: StepPath
    answer: Any


class TaskHalted(msgspec.Struct, frozen=True, tag_field="type", tag="task.halted.v1"):
    at_ms: int
    path: StepPath


class ProgramMoved(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="program.moved.v1"):
    """What the program changed in its memory and in the run's variables, and nothing else of them."""

    at_ms: int
    memory: dict[str, Any] = {}
    forgot: tuple[str, ...] = ()
    vars: dict[str, Any] = {}


class VarsUpdated(msgspec.Struct, frozen=True, tag_field="type", tag="vars.updated.v1"):
    """Somebody outside changed the run's variables."""

    at_ms: int
    request: str
    vars: dict[str, Any]


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """An outcome that was, or is still to be, put to the program."""

    kind: Literal["step", "timer", "signal", "child", "task"]
    key: str
    path: StepPath | None = None  # of a step, a child, a task
    name: str = ""  # of a step
    value: Any = None
    fault: StepFault | None = None


class BreakpointsSet(msgspec.Struct, frozen=True, tag_field="type", tag="breakpoints.set.v1"):
    """Where somebody wants the execution to stop, in place of what they wanted before; empty: nowhere."""

    at_ms: int
    request: str
    keys: tuple[str, ...]


class ExecutionPaused(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.paused.v1"):
    """Somebody paused it (`request`), a `budget` is used up, or it came to a `breakpoint`; then `held` are the outcomes
    that the program was about to hear: what it answered is not followed, and it hears them when the execution goes on.

    Of one that is paused already, it only changes who has to let it go on."""

    at_ms: int
    request: str
    reason: str
    breakpoint: str = ""
    held: tuple[Answered, ...] = ()
    budget: str = ""


class ExecutionResumed(msgspec.Struct, frozen=True, tag_field="type", tag="execution.resumed.v1"):
    at_ms: int
    request: str


class ExecutionRetried(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.retried.v1"):
    """A failed execution goes on. What had been open when it failed is begun anew by the events that follow; of one
    that is `queued` again, because room for it is limited, by those that follow `ExecutionBegun`."""

    at_ms: int
    request: str
    queued: bool = False


class ForkOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose beginning an execution has, and where it left it."""

    execution: ExecutionId
    version: int  # how many events of the other one come before
    path: StepPath  # of the step, child or task where they part
    going: Literal["from", "after"]  # it begins anew, or its outcome stands and the rest is new
    edited: tuple[str, ...] = ()  # what somebody changed there: `input`, `output`, `vars`


class ExecutionForked(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.forked.v1"):
    """All before this was recorded by another execution, but for what was edited; all after it is its own.

    What was open is begun anew after `ExecutionBegun`, and `answered` is then put to the program.
    """

    at_ms: int
    request: str
    of: ForkOf
    left_at_ms: int  # when the other one was there: timers have as much time left as they had then
    deadline_ms: int | None = None
    input: Any = None
    vars: dict[str, Any] = {}
    answered: Answered | None = None
    reason: str = ""
    workspace: WorkspaceLeft | None = None  # as it was there: a copy, on the shelf of this execution


class ExecutionMoved(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.moved.v1"):
    """From here on it follows another version of its workflow, and is pinned to that. What is open stays open."""

    at_ms: int
    request: str
    workflow: WorkflowRef
    vars: dict[str, Any] = {}  # what the version needs and the run did not have, or had by another name
    renamed: dict[str, str] = {}  # those, and the names that are gone
    reason: str = ""


class CancelRequested(msgspec.Struct, frozen=True, tag_field="type", tag="execution.cancel_requested.v1"):
    at_ms: int
    request: str
    reason: str


class ExecutionTimedOut(msgspec.Struct, frozen=True, tag_field="type", tag="execution.timed_out.v1"):
    """Its time is over and it undoes its work; `ExecutionFailed` follows. Without anything to undo, only that one."""

    at_ms: int


class ExecutionCompleted(msgspec.Struct, frozen=True, tag_field="type", tag="execution.completed.v1"):
    at_ms: int
    output: Any


class ExecutionFailed(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="execution.failed.v1"):
    """`answered` is the outcome that the program answered with this failure: where a retry takes up."""

    at_ms: int
    fault: StepFault
    answered: Answered | None = None


class ExecutionCancelled(msgspec.Struct, frozen=True, tag_field="type", tag="execution.cancelled.v1"):
    at_ms: int
    reason: str


class ExecutionTerminated(msgspec.Struct, frozen=True, tag_field="type", tag="execution.terminated.v1"):
    at_ms: int
    request: str
    reason: str


StepEvent = (
    StepScheduled | StepSucceeded | StepFailed | StepHalted | StepExcused | StepClaimed | StepDoubted | DoubtSettled
)  # fmt: skip
WaitEvent = (
    TimerStarted | TimerFired | TimerHalted
    | SignalAwaited | SignalReceived | SignalTaken | SignalHalted
    | ChildStarted | ChildEnded | ChildHalted
    | TaskOpened | TaskAnswered | TaskHalted
)  # fmt: skip
# What concerns an execution as a whole; each may change its status.
LifecycleEvent = (
    ExecutionStarted | ExecutionBegun | ExecutionPaused | ExecutionResumed | ExecutionRetried | ExecutionForked
    | ExecutionMoved | CancelRequested | ExecutionTimedOut
    | ExecutionCompleted | ExecutionFailed | ExecutionCancelled | ExecutionTerminated
)  # fmt: skip
Event = StepEvent | WaitEvent | ProgramMoved | VarsUpdated | BreakpointsSet | LifecycleEvent

_encoder = msgspec.json.Encoder(enc_hook=claims.refuse_claims)
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    try:
        return _encoder.encode(event)
    except claims.HoldsClaims:
        return claims.encode(_encoder, event)


def decode(raw: bytes | str) -> Event:
    return claims.decode(_decoder, raw)


def type_of(event: Event) -> str:
    """The stored name, such as `step.succeeded.v1`."""
    return tag_of(type(event))


def tag_of(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)
