"""What workers and the control plane ask each other about tools, as payloads of bus requests."""

from typing import Any, Literal

import msgspec

from agentflow.contracts.step import StepFault


class DefinitionQuestion(msgspec.Struct, frozen=True):
    """Worker to control plane: the definition that an execution is pinned to."""

    tenant_id: str
    digest: str
    v: Literal[1] = 1


class DefinitionAnswer(msgspec.Struct, frozen=True):
    definition: dict[str, Any] | None
    v: Literal[1] = 1


class ToolTest(msgspec.Struct, frozen=True):
    """Control plane to a worker: one call outside of any execution. Without `network`, nothing can be reached."""

    tenant_id: str
    tool: str
    input: Any
    call_id: str
    definition: dict[str, Any] | None = None  # None: one that is built in
    network: bool = False
    v: Literal[1] = 1


class ToolTestOutcome(msgspec.Struct, frozen=True):
    output: Any = None
    fault: StepFault | None = None
    logs: str = ""
    duration_ms: int = 0
    backend: str = ""
    isolation: str = ""
    profile_hash: str = ""
    worker: str = ""
    v: Literal[1] = 1
