"""What reached us. Nothing here is a fact yet: a message may be late, repeated, or about something given up.

What is reported names the path it is about; what somebody wants carries an `id` of its own, because a repeated
"pause" that arrives after a "resume" must not pause again.
"""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.errors import Bug
from agentflow.execution.events import ExecutionStarted, ForkOf, Parent, Queued, WorkflowRef
from agentflow.execution.fork import Kept
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId


class Stamp(msgspec.Struct, frozen=True):
    """The outside world of one decision: what time it is, and a number in [0, 1) for jitter.

    Without `hears`, results may be on their way and cannot be told from silence: the bus is away, or only just back.
    With `straight`, a worker waits for an answer and may be given this agent's steps that follow with it.
    """

    at_ms: int
    chance: float = 0.0
    hears: bool = True
    straight: str = ""


class Start(msgspec.Struct, frozen=True):
    stamp: Stamp
    execution: ExecutionId
    tenant: TenantId
    workflow: WorkflowRef
    input: Any
    trace: TraceId
    timeout_ms: int | None = None
    parent: Parent | None = None
    env: dict[str, str] = {}
    priority: int = 0
    queue: Queued | None = None


class Fork(msgspec.Struct, frozen=True):
    """Begin an execution with what another one has recorded up to a place."""

    stamp: Stamp
    execution: ExecutionId
    tenant: TenantId
    trace: TraceId
    id: str
    of: ForkOf
    kept: Kept
    input: Any = None
    vars: dict[str, Any] = {}
    timeout_ms: int | None = None
    priority: int = 0
    queue: Queued | None = None
    reason: str = ""
    workspace: WorkspaceLeft | None = None

    @property
    def started(self) -> ExecutionStarted:
        """How the other one began."""
        started = self.kept.events[0]
        if not isinstance(started, ExecutionStarted):
            raise Bug(f"The history of {self.of.execution} does not begin with its start.")
        return started

    @property
    def workflow(self) -> WorkflowRef:
        return self.started.workflow


class Admitted(msgspec.Struct, frozen=True):
    """There is room for an execution that was queued for it."""

    stamp: Stamp


class StepReported(msgspec.Struct, frozen=True):
    stamp: Stamp
    path: StepPath
    attempt: int
    worker: WorkerId
    started_at_ms: int
    finished_at_ms: int
    output: Any = None
    fault: StepFault | None = None
    workspace: WorkspaceLeft | None = None


class ClaimStep(msgspec.Struct, frozen=True):
    """A worker wants to make the one call of a step's tool; whether it may is in `state.claimed` afterwards."""

    stamp: Stamp
    path: StepPath
    attempt: int
    worker: WorkerId
    id: str
    undone: bool = False


class TimeReached(msgspec.Struct, frozen=True):
    """The moment that `state.next_wakeup` named has come (or something else woke the shell: harmless)."""

    stamp: Stamp


class ChildEnded(msgspec.Struct, frozen=True):
    """`path` is the one that `StartChild` gave: another run under the same key is another child."""

    stamp: Stamp
    path: StepPath
    output: Any = None
    fault: StepFault | None = None


class TaskAnswered(msgspec.Struct, frozen=True):
    stamp: Stamp
    path: StepPath
    answer: Any


class Signal(msgspec.Struct, frozen=True):
    """Something the outside wants a run to know. Kept until a program waits for that name."""

    stamp: Stamp
    id: str
    name: str
    payload: Any = None


class Pause(msgspec.Struct, frozen=True):
    """Begin nothing new. What runs may end, and its end is recorded.

    With a `budget`, until there is something in it again; a person's word counts for more, and stays.
    """

    stamp: Stamp
    id: str
    reason: str = ""
    budget: str = ""


class Resume(msgspec.Struct, frozen=True):
    """With a `budget`, only what stands still because of that one."""

    stamp: Stamp
    id: str
    budget: str = ""


class Cancel(msgspec.Struct, frozen=True):
    """Stop in order: halt what is open, let the program undo its work, then end."""

    stamp: Stamp
    id: str
    reason: str = ""


class Terminate(msgspec.Struct, frozen=True):
    """Stop now, without undoing anything."""

    stamp: Stamp
    id: str
    reason: str = ""


class UpdateVars(msgspec.Struct, frozen=True):
    """An operator's change to the run's variables; those not named stay. Also of a failed run, before it is retried."""

    stamp: Stamp
    id: str
    vars: dict[str, Any]


class SetBreakpoints(msgspec.Struct, frozen=True):
    """Stop before anything under one of these keys begins: states of a machine, nodes of a tree. In place of the ones
    before; empty: nowhere."""

    stamp: Stamp
    id: str
    keys: tuple[str, ...]


class RetryFailed(msgspec.Struct, frozen=True):
    """Continue a failed run where it broke: the failed step again, and all that was open beside it."""

    stamp: Stamp
    id: str


class Move(msgspec.Struct, frozen=True):
    """Let a run follow another version of its workflow. Decided by the program of that version (see `moving`)."""

    stamp: Stamp
    id: str
    workflow: WorkflowRef
    kinds: dict[str, str] = {}  # what stood, in the version it leaves, where the run stands
    renamed: dict[str, str] = {}  # variables: the new name, and the one that the run has it under
    vars: dict[str, Any] = {}  # variables with values that somebody gives
    reason: str = ""


Request = Signal | Pause | Resume | Cancel | Terminate | UpdateVars | SetBreakpoints | RetryFailed | Move
Report = StepReported | ClaimStep | TimeReached | Admitted | ChildEnded | TaskAnswered
Beginning = Start | Fork
ExecutionMessage = Beginning | Report | Request
