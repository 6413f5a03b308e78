"""Where everything that concerns an execution arrives, from the API, the bus and the timers alike.

Natural batching: the commit loop takes all that came while the last commit ran. Nothing lingers, so a lone
execution waits for no one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agentflow import limits
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.execution.messages import ExecutionMessage
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId


class Overloaded(Unavailable):
    code = "AF2003"

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{waiting} requests already wait for a commit.",
            hint="Send the request again in a moment; if this lasts, the database is the bottleneck.",
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message for one execution, and whom to tell: `settled` once it is durable, `refused` if it could not be."""

    execution: ExecutionId
    message: ExecutionMessage
    settled: Callable[[ExecutionState], None]
    refused: Callable[[AgentFlowError], None]


class Inbox:
    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._arrivals)

    def put(self, arrival: Arrival) -> None:
        """Always takes it: the sources bound themselves (consumer credit, one timer an execution, `admit`)."""
        self._arrivals.append(arrival)
        self._filled.set()

    def admit(self, arrival: Arrival) -> None:
        """The door for new work: refuses instead of growing without bound."""
        if len(self._arrivals) >= limits.COMMIT_QUEUE_MAX:
            raise Overloaded(len(self._arrivals))
        self.put(arrival)

    async def take(self) -> list[Arrival]:
        while not self._arrivals:
            self._filled.clear()
            await self._filled.wait()
        count = min(len(self._arrivals), limits.COMMIT_BATCH_MAX)
        return [self._arrivals.popleft() for _ in range(count)]
