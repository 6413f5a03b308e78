"""The two words between a worker and a sandbox: a call, and what became of it."""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.ids import ExecutionId
from sandbox.policy import Isolation


class ToolCall(msgspec.Struct, frozen=True):
    """One call of `module:function`, importable from `path`. The rest reaches the tool as its `context`."""

    call: str
    path: tuple[str, ...]
    input: Any
    execution_id: ExecutionId
    step: str
    attempt: int
    effect_key: str
    # This attempt's unix socket to the egress proxy, the only way out; a backend makes it reachable inside, and the
    # tool finds it in AGENTFLOW_EGRESS. None: there is no way out.
    egress: str | None = None
    # The execution's folder; inside it is AGENTFLOW_WORKSPACE, if the profile grants it.
    workspace: str | None = None


class SandboxOutcome(msgspec.Struct, frozen=True):
    """Exactly one of `output` and `fault` is meant. `logs` is what the tool printed, cut at a bound."""

    isolation: Isolation
    profile_hash: str
    duration_s: float
    output: Any = None
    fault: StepFault | None = None
    exit_code: int | None = None  # negative: the signal that ended it; None: it never came to an end of its own
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    logs: str = ""
