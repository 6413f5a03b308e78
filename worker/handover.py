"""Hands results to the control plane that asked for them: all that end in one moment in one message.

Used by the `reporter`, which goes through the stream wherever this says no: nobody answered in time, or the shard has
another owner by now. A result that was handed over and published is committed once, so saying no is always safe.
The answer brings the steps that follow, for the mailboxes that said they have room.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentflow import limits
from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, bundled, opened
from agentflow.contracts.message import Message
from agentflow.errors import AgentFlowError
from agentflow.ids import AgentName
from agentflow.ports import MessageBus


class Desk(Protocol):
    """Where an agent's results come from, and where steps for it may be put."""

    @property
    def name(self) -> AgentName: ...

    def offer(self, most: int) -> int:
        """How many steps it would begin at once, at most so many; they are kept free until it is `given` some."""
        ...

    def given(self, steps: Sequence[Message], *, offered: int) -> None: ...


class _Handed(NamedTuple):
    message: Message
    committed: asyncio.Future[bool]
    desk: Desk | None


class HandOver:
    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._waiting: dict[str, list[_Handed]] = {}  # by the subject on which a control plane takes them
        self._under_way: set[asyncio.Task[None]] = set()

    async def is_committed(self, owner: str, message: Message, desk: Desk | None = None) -> bool:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)  # after all that is about to end in this turn of the loop
        committed: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(owner, []).append(_Handed(message, committed, desk))
        return await committed

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for owner, handed in waiting.items():
            for part in _parts(handed):
                task = asyncio.create_task(self._ask(owner, part))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)

    async def _ask(self, owner: str, part: list[_Handed]) -> None:
        offers = [(desk, desk.offer(most)) for desk, most in _desks(part).items()]
        room = {desk.name: offered for desk, offered in offers if offered}
        question = ResultsHanded([each.message for each in part], room)
        taken = ResultsTaken(list(range(len(part))))
        try:
            answer = await self._bus.request(owner, bundled(question), within_s=limits.DIRECT_RESULT_S)
            taken = opened(answer, ResultsTaken)
        except AgentFlowError:
            pass
        finally:
            refused = set(taken.refused)
            for place, each in enumerate(part):
                if not each.committed.done():
                    each.committed.set_result(place not in refused)
            steps = _steps_by_agent(taken.steps)
            for desk, offered in offers:
                desk.given(steps.get(desk.name, ()), offered=offered)


def _desks(part: list[_Handed]) -> Counter[Desk]:
    """How many of these results each agent gives: as many of its steps can follow."""
    return Counter(each.desk for each in part if each.desk is not None)


def _steps_by_agent(messages: list[Message]) -> dict[str, list[Message]]:
    steps: dict[str, list[Message]] = {}
    for message in messages:
        steps.setdefault(message.to, []).append(message)
    return steps


def _parts(handed: list[_Handed]) -> list[list[_Handed]]:
    parts: list[list[_Handed]] = [[]]
    size = 0
    for each in handed:
        size += len(each.message.payload)
        if parts[-1] and size > limits.DIRECT_RESULTS_BYTES:
            parts.append([])
            size = len(each.message.payload)
        parts[-1].append(each)
    return parts
