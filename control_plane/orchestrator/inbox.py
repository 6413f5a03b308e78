"""Where everything that concerns an execution arrives, from the API, the bus and the timers alike.

Natural batching: the commit loop takes all that came while the last commit ran. Nothing lingers, so a lone
execution waits for no one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentflow import limits
from agentflow.contracts.audit import AuditEntry
from agentflow.contracts.message import Message
from agentflow.contracts.usage import Usage
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.execution.messages import ExecutionMessage
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, TenantId
from control_plane.orchestrator.fair_queue import FairQueue


class Overloaded(Unavailable):
    code = "AF2003"

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{waiting} requests already wait for a commit.",
            hint="Send the request again in a moment; if this lasts, the database is the bottleneck.",
        )


class WayBack(Protocol):
    """To the worker that a result came from, while it waits to hear that the result is durable."""

    def has_room(self, agent: str) -> bool: ...

    def take(self, pool: str, agent: AgentName, message: Message) -> bool:
        """Whether a step goes that way, and so by no other."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message for one execution, and whom to tell: `settled` once it is durable, `refused` if it could not be."""

    execution: ExecutionId
    message: ExecutionMessage
    settled: Callable[[ExecutionState], None]
    refused: Callable[[AgentFlowError], None]
    again: bool = False  # of a start: it may have been committed before
    only_at: int | None = None  # the version its sender has seen; at another one it is refused
    pool: str | None = None  # of the worker that sent it, if one did: of another tenant's executions it knows nothing
    usage: tuple[Usage, ...] = ()  # of a step's result: committed with it
    audit: AuditEntry | None = None  # who wants it: committed with what it leads to
    back: WayBack | None = None  # for the steps that follow


class Inbox:
    """Two lines: what executions under way wait for, in order; and new work, in which tenants take turns."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._starts: FairQueue[Arrival] = FairQueue()
        self._stirred = asyncio.Event()

    def __len__(self) -> int:
        return len(self._arrivals) + len(self._starts)

    def put(self, arrival: Arrival) -> None:
        """Always takes it: the sources bound themselves (consumer credit, one timer an execution)."""
        self._arrivals.append(arrival)
        self._stirred.set()

    def admit(self, tenant: TenantId, arrival: Arrival, *, priority: int = 0) -> None:
        """The door for new work: refuses instead of growing without bound, and leaves room for other tenants."""
        if len(self) >= limits.COMMIT_QUEUE_MAX:
            raise Overloaded(len(self))
        if self._starts.waiting(tenant) >= limits.COMMIT_QUEUE_TENANT_MAX:
            raise Overloaded(self._starts.waiting(tenant))
        self._starts.put(tenant, arrival, priority=priority)
        self._stirred.set()

    def take(self, most: int = limits.COMMIT_BATCH_MAX) -> list[Arrival]:
        """What is there, of both lines: neither can keep the other waiting for longer than one commit."""
        starts = min(len(self._starts), max(most // 2, most - len(self._arrivals)))
        others = min(len(self._arrivals), most - starts)
        return [self._arrivals.popleft() for _ in range(others)] + [self._starts.take() for _ in range(starts)]

    def stir(self) -> None:
        """Something else has happened that whoever waits here should look at."""
        self._stirred.set()

    async def stirred(self) -> None:
        """Until something has arrived, or happened, since the last time."""
        await self._stirred.wait()
        self._stirred.clear()
