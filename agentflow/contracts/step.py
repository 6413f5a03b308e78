"""What the control plane asks of a worker, and what the worker answers; payloads of `Message`."""

from typing import Any, Literal

import msgspec

from agentflow.contracts.claims import Claimed
from agentflow.contracts.usage import Usage
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, WorkerId

# Who performs a step that names a tool and no agent.
TOOLS_AGENT = AgentName("tools")

# Faults that say nothing about the step, only about who had it: the attempt is over and another one follows whatever
# the step's retry rule says. A lost one is counted, because a step may be what kills its workers.
WORKER_LOST = "worker_lost"
WORKER_STOPPED = "worker_stopped"
STEP_CANCELLED = "cancelled"  # somebody asked for it; nothing follows

# Faults of a step whose tool must not be called twice, and was claimed for one call (see `StepClaim`).
IN_DOUBT = "in_doubt"  # nobody can tell whether it was done: a person decides
NOT_DONE = "not_done"  # it was certainly not done: it may be called
STEP_TIMEOUT = "timeout"

# What such a fault, reported of a claimed step, says about the call: nothing.
TELLS_NOTHING = frozenset({WORKER_LOST, WORKER_STOPPED, STEP_TIMEOUT, STEP_CANCELLED, IN_DOUBT})


class StepFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a step failed. `code` is what `on_error` may route by; `retryable` says whether another attempt may help."""

    code: str
    message: str
    retryable: bool = False


class StepRequest(msgspec.Struct, frozen=True):
    execution_id: ExecutionId
    workflow: str
    shard: int
    path: StepPath
    name: str
    attempt: int
    input: Any
    timeout_ms: int
    # The same over all attempts of a step: what a tool hands on as its idempotency key.
    effect_key: str
    tool: str | None = None
    claims: tuple[Claimed, ...] = ()  # of `input`: what is too large to travel
    # The definition of the tool that the execution is pinned to; None for what only the worker knows.
    tool_digest: str | None = None
    # An earlier attempt had claimed the tool's one call, and what became of it is not known.
    in_doubt: bool = False
    # Sent before, perhaps, and not by the stream: somebody may have begun it, so nobody begins this attempt now.
    again: bool = False
    # The control plane that asks. It takes the result itself while it is there; otherwise the stream does.
    owner: str | None = None
    # What is known of the workspace: the call must find this version, or a later one.
    workspace: WorkspaceLeft | None = None
    v: Literal[1] = 1


class StepClaim(msgspec.Struct, frozen=True):
    """A worker asks to make the one call of a step's tool. Only who is granted it may call.

    Asking again under the same `id` gets the same answer. `undone`: a call that fails leaves nothing behind, so it may
    be made again (effect `transactional`).
    """

    tenant_id: TenantId
    execution_id: ExecutionId
    path: StepPath
    attempt: int
    worker: WorkerId
    id: str
    undone: bool = False
    v: Literal[1] = 1


class ClaimAnswer(msgspec.Struct, frozen=True):
    granted: bool
    reason: str = ""
    v: Literal[1] = 1


class StepResult(msgspec.Struct, frozen=True):
    """Exactly one of `output` and `fault` is meant: a result with a fault is a failure."""

    execution_id: ExecutionId
    path: StepPath
    attempt: int
    worker: WorkerId
    started_at_ms: int
    finished_at_ms: int
    output: Any = None
    fault: StepFault | None = None
    claims: tuple[Claimed, ...] = ()  # of `output`
    usage: tuple[Usage, ...] = ()  # what the attempt used, whatever became of it
    workspace: WorkspaceLeft | None = None  # what its call left there
    v: Literal[1] = 1


class HeldStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that is with a worker now, running or about to."""

    execution_id: ExecutionId
    path: StepPath
    attempt: int


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's sign of life. Not stored anywhere: only the newest one matters."""

    worker: WorkerId
    agents: dict[str, int]  # agent name → steps running now
    started_at_ms: int
    at_ms: int
    draining: bool = False
    # All it holds, so that the control plane knows what is lost with it.
    steps: tuple[HeldStep, ...] = ()
    leaving: bool = False  # its last: it has nothing any more
    sandbox: str = ""  # what fences a tool here that asks for nothing stronger; empty where it runs no tools
    v: Literal[1] = 1


class CancelSteps(msgspec.Struct, frozen=True, tag_field="type", tag="cancel_steps"):
    """To every worker, by broadcast: nobody waits for this step any more. Without a path: for any of the execution.

    Attempts up to `attempt` are meant, so a word that comes late does not reach the attempt that follows. Best
    effort: whoever misses it reports, and is not listened to.
    """

    execution_id: ExecutionId
    path: StepPath | None = None
    attempt: int | None = None
    reason: str = "cancelled"


class ReleaseState(msgspec.Struct, frozen=True, tag_field="type", tag="release_state"):
    """To every worker, by broadcast: another one needs this agent's state; save it and let it go."""

    tenant: TenantId
    agent: AgentName
    instance: str


WorkerControl = CancelSteps | ReleaseState
