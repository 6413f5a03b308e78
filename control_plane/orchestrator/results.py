"""Brings workers' results into the inbox, and says so once they are committed: to the stream, or to the worker itself.

A worker hands its results to the replica that asked for them, many at a time, and hears which are durable. Whatever
is not goes through the stream, which keeps it for whoever owns the shard then; both ways may bring the same result.
The steps that follow from what it handed over go back with the answer, as far as it says that it has room for them.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, bundled, opened
from agentflow.contracts.claims import joined
from agentflow.contracts.message import Message
from agentflow.contracts.step import StepResult
from agentflow.errors import AgentFlowError
from agentflow.execution.messages import Stamp, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName
from agentflow.ports import Delivery
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.inbox import Arrival, Inbox, WayBack

_log = structlog.get_logger(__name__)

_TRY_AGAIN_S = 1.0


class _HandedOver:
    """Results that are answered together, and what goes back to their worker with the answer."""

    def __init__(self, pool: str, handed: ResultsHanded, clock: Clock) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._steps: list[Message] = []
        self._pool = pool
        self._room = dict(handed.room)
        self._bytes_left = limits.STEPS_BACK_BYTES
        self._clock = clock
        self._until_s = clock.monotonic_s() + limits.STEPS_BACK_S
        self._refused: list[int] = []
        self._left = len(handed.results) + 1
        self.settled()  # so that none at all are answered too

    def has_room(self, agent: str) -> bool:
        return self._room.get(AgentName(agent), 0) > 0

    def take(self, pool: str, agent: AgentName, message: Message) -> bool:
        """Whether a step goes back this way; otherwise it goes by its agent's mailbox."""
        room = self._room.get(agent, 0)
        if room <= 0 or pool != self._pool or self.answer.done() or self._clock.monotonic_s() > self._until_s:
            return False
        if len(message.payload) > self._bytes_left:
            return False
        self._bytes_left -= len(message.payload)
        self._room[agent] = room - 1
        self._steps.append(message)
        return True

    def settled(self) -> None:
        self._left -= 1
        if not self._left and not self.answer.done():
            self.answer.set_result(bundled(ResultsTaken(self._refused, self._steps)))

    def refused(self, place: int, _: AgentFlowError) -> None:
        self._refused.append(place)
        self.settled()


class Results:
    def __init__(self, inbox: Inbox, stamp: Callable[[], Stamp], clock: Clock) -> None:
        self._inbox = inbox
        self._stamp = stamp
        self._clock = clock

    def receive(self, delivery: Delivery) -> None:
        def refused(_: AgentFlowError) -> None:
            delivery.nak(_TRY_AGAIN_S)

        self._take(delivery.pool, delivery.message, delivery.ack, refused)

    def hand_over(self, pool: str, raw: bytes) -> "asyncio.Future[bytes]":
        """Answers with the places of those that were not taken, once all the others are committed."""
        question = opened(raw, ResultsHanded)
        handed = _HandedOver(pool, question, self._clock)
        for place, message in enumerate(question.results):
            self._take(pool, message, handed.settled, partial(handed.refused, place), handed)
        return handed.answer

    def _take(
        self,
        pool: str,
        message: Message,
        over: Callable[[], None],
        refused: Callable[[AgentFlowError], None],
        back: WayBack | None = None,
    ) -> None:
        """`over` is told once there is nothing left to do for this result, now or ever."""
        try:
            result = message.read(StepResult)
            output = joined(result.output, result.claims)
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            _log.error("result.refused", message=message.id, sender=message.sender, reason=str(error))
            over()  # it will not become readable by coming again
            return
        stamp = self._stamp()
        if back is not None and back.has_room(message.sender):
            stamp = msgspec.structs.replace(stamp, straight=message.sender)
        reported = StepReported(
            stamp=stamp,
            path=result.path,
            attempt=result.attempt,
            worker=result.worker,
            started_at_ms=result.started_at_ms,
            finished_at_ms=result.finished_at_ms,
            output=output,
            fault=result.fault,
            workspace=result.workspace,
        )

        def settled(_: ExecutionState) -> None:
            over()

        def not_settled(error: AgentFlowError) -> None:
            if isinstance(error, UnknownExecution):
                over()
            else:
                refused(error)

        usage = result.usage
        self._inbox.put(Arrival(result.execution_id, reported, settled, not_settled, pool=pool, usage=usage, back=back))
