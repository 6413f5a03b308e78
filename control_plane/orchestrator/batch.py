"""What is decided together and written in one transaction. Made by the commit loop; holds no rule of its own."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agentflow.contracts.audit import AuditEntry
from agentflow.contracts.message import Message
from agentflow.errors import AgentFlowError, Bug
from agentflow.execution.commands import Command
from agentflow.execution.events import Event
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath
from agentflow.ports import Observation
from control_plane.orchestrator.inbox import Arrival, WayBack


@dataclass(slots=True)
class Draft:
    """What one batch wants of one execution."""

    shard: int
    epoch: int  # of the shard, when `before` was the newest
    before: ExecutionState
    state: ExecutionState
    events: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    costs: list[Observation] = field(default_factory=list)
    counted: list[Any] = field(default_factory=list)  # of what is left of budgets, until it is known to be durable
    audits: list[AuditEntry] = field(default_factory=list)
    back: WayBack | None = None  # to the worker that was heard last
    messages: dict[StepPath, Message] = field(default_factory=dict)  # of its commands, ready to be sent


class Batch:
    def __init__(self) -> None:
        self.drafts: dict[ExecutionId, Draft] = {}
        self.decided: list[Arrival] = []
        self.behind: list[Arrival] = []  # what came for these executions while they were being written
        self.epochs: Mapping[int, int] = {}  # it is written under: a shard may go, and even come back, meanwhile
        self._writing: asyncio.Task[None] | None = None

    @property
    def moved(self) -> list[Draft]:
        return [draft for draft in self.drafts.values() if draft.events]

    def write(self, writing: Coroutine[None, None, None], *, then: Callable[[], None]) -> None:
        self._writing = asyncio.create_task(writing, name="commit")
        self._writing.add_done_callback(lambda _: then())

    @property
    def is_over(self) -> bool:
        return self._writing is not None and self._writing.done()

    def result(self) -> None:
        """Raises what writing it raised."""
        if self._writing is None:
            raise Bug("A batch has no outcome before it is written.")
        self._writing.result()

    async def give_up(self) -> None:
        """Whoever writes it is told to stop; nobody learns the outcome."""
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError, AgentFlowError):
                await self._writing
