"""What to do once the events are committed. Each command carries the key that makes doing it twice harmless."""

from typing import Any

import msgspec

from agentflow.ids import AgentName, StepPath


class DispatchStep(msgspec.Struct, frozen=True):
    """Send a step to its agent. Key: execution, path and attempt."""

    path: StepPath
    name: str
    attempt: int
    agent: AgentName
    tool: str | None
    input: Any
    timeout_ms: int


Command = DispatchStep
