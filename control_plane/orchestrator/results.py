"""Brings workers' results into the inbox, and says so once they are committed: to the stream, or to the worker itself.

A worker hands its results to the replica that asked for them, many at a time, and hears which are durable. Whatever
is not goes through the stream, which keeps it for whoever owns the shard then; both ways may bring the same result.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from agentflow.contracts.claims import joined
from agentflow.contracts.message import Message, TamperedMessage, decode
from agentflow.contracts.step import StepResult
from agentflow.errors import AgentFlowError
from agentflow.execution.messages import Stamp, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ports import Delivery
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.inbox import Arrival, Inbox

_log = structlog.get_logger(__name__)

_TRY_AGAIN_S = 1.0
_read_handed_over = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _HandedOver:
    """Results that are answered together."""

    def __init__(self, results: int) -> None:
        self.not_taken: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._refused: list[int] = []
        self._left = results + 1
        self.settled()  # so that none at all are answered too

    def settled(self) -> None:
        self._left -= 1
        if not self._left and not self.not_taken.done():
            self.not_taken.set_result(self._refused)

    def refused(self, place: int, _: AgentFlowError) -> None:
        self._refused.append(place)
        self.settled()


class Results:
    def __init__(self, inbox: Inbox, stamp: Callable[[], Stamp]) -> None:
        self._inbox = inbox
        self._stamp = stamp

    def receive(self, delivery: Delivery) -> None:
        def refused(_: AgentFlowError) -> None:
            delivery.nak(_TRY_AGAIN_S)

        self._take(delivery.pool, delivery.message, delivery.ack, refused)

    async def hand_over(self, pool: str, raw: bytes) -> bytes:
        """Answers with the places of those that were not taken, once all the others are committed."""
        results = _read_handed_over(raw)
        handed = _HandedOver(len(results))
        for place, each in enumerate(results):
            not_taken = partial(handed.refused, place)
            try:
                self._take(pool, decode(bytes(each)), handed.settled, not_taken)
            except TamperedMessage as error:
                _log.warning("result.refused", reason=error.message)
                not_taken(error)
        return msgspec.json.encode(await handed.not_taken)

    def _take(
        self, pool: str, message: Message, over: Callable[[], None], refused: Callable[[AgentFlowError], None]
    ) -> None:
        """`over` is told once there is nothing left to do for this result, now or ever."""
        try:
            result = message.read(StepResult)
            output = joined(result.output, result.claims)
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            _log.error("result.refused", message=message.id, sender=message.sender, reason=str(error))
            over()  # it will not become readable by coming again
            return
        reported = StepReported(
            stamp=self._stamp(),
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
        self._inbox.put(Arrival(result.execution_id, reported, settled, not_settled, pool=pool, usage=usage))
