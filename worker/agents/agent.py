"""What a mailbox asks of an agent, and what an agent may know about the step it serves."""

from typing import Any, Protocol

import msgspec

from agentflow.contracts.step import StepRequest
from agentflow.ids import ExecutionId


class StepContext(msgspec.Struct, frozen=True):
    """Handed to functions that take a parameter named `context`."""

    execution_id: ExecutionId
    step: str
    attempt: int
    effect_key: str  # the same over all attempts: hand it on wherever doing a thing twice would hurt
    deadline_ms: int  # since the epoch; the step is given up then


class Agent(Protocol):
    async def run(self, request: StepRequest, context: StepContext) -> Any:
        """The step's output. Raises whatever went wrong; may be cancelled at any await."""
        ...

    async def close(self) -> None: ...
