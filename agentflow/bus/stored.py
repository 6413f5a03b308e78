"""Reads what a stream has stored, in order, through an ephemeral consumer that acks nothing.

Called by `nats_jetstream`, which creates the consumer. Asks for one batch at a time, so a slow reader holds back
the server and not the memory.
"""

import asyncio
from collections.abc import AsyncGenerator

import structlog

from agentflow.bus import wire
from agentflow.contracts.message import Message, decode
from agentflow.errors import AgentFlowError
from agentflow.ports import BusUnavailable

log = structlog.get_logger(__name__)

_BATCH = 256
_ANSWER_WITHIN_S = 5.0


async def stored_messages(
    line: wire.Line, *, stream: str, consumer: str, last_sequence: int
) -> AsyncGenerator[Message, None]:
    arrivals: asyncio.Queue[tuple[bytes, bytes, bytes]] = asyncio.Queue()
    inbox = await line.open_inbox(lambda _, reply, data, headers: arrivals.put_nowait((reply, data, headers)))
    asked = 0
    try:
        while True:
            if asked == 0:
                asked = _BATCH
                line.send(
                    wire.pull_request(
                        stream,
                        consumer,
                        batch=_BATCH,
                        expires_s=_ANSWER_WITHIN_S,
                        heartbeat_s=_ANSWER_WITHIN_S / 2,
                        reply=f"{inbox.subject}.next",
                    )
                )
            reply, data, headers = await _next(arrivals, stream)
            if not wire.is_delivery(reply):
                _check(wire.status(headers), stream)
                continue
            asked -= 1
            at = wire.position(reply)
            if at.sequence > last_sequence:
                return
            try:
                message = decode(data)
            except AgentFlowError as error:
                log.warning("bus.message_refused", stream=stream, sequence=at.sequence, reason=error.message)
            else:
                yield message
            if at.sequence == last_sequence or at.pending == 0:
                return
    finally:
        await inbox.close()


async def _next(arrivals: asyncio.Queue[tuple[bytes, bytes, bytes]], stream: str) -> tuple[bytes, bytes, bytes]:
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            return await arrivals.get()
    except TimeoutError:
        raise BusUnavailable(f"{stream} stopped answering in the middle of a replay") from None


def _check(status: wire.Status | None, stream: str) -> None:
    if status is None or status.code != 100:
        reason = status.text if status else "an answer that cannot be read"
        raise BusUnavailable(f"{stream} ended a replay early ({reason})")
