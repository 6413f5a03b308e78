"""What the control plane asks of a worker, and what the worker answers; payloads of `Message`."""

from typing import Any, Literal

import msgspec

from agentflow.ids import AgentName, ExecutionId, StepPath, WorkerId

# Who performs a step that names a tool and no agent.
TOOLS_AGENT = AgentName("tools")


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
    v: Literal[1] = 1


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's sign of life. Not stored anywhere: only the newest one matters."""

    worker: WorkerId
    agents: dict[str, int]  # agent name → steps running now
    started_at_ms: int
    at_ms: int
    draining: bool = False
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
