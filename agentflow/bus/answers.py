"""Answers to what others ask: each question is begun as it arrives, so many at once, and answered when it is ready.

Given a `Line` by `nats_jetstream`, as the `Sink` of a subscription. nats-py's own way (a queue, a task that waits for
it, and a task for each question) wakes the loop three times before the first line of an answer runs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from agentflow import limits
from agentflow.bus import wire

# What was asked where, and the answer: a future where all that can be done at once is done when it returns.
Handler = Callable[[str, bytes], Awaitable[bytes]]

log = structlog.get_logger(__name__)


class Answers:
    def __init__(self, line: wire.Line, handler: Handler) -> None:
        self._line = line
        self._handler = handler
        self._under_way: set[asyncio.Future[bytes]] = set()
        self._waiting: deque[tuple[str, bytes, bytes]] = deque()

    def asked(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if len(self._under_way) < limits.ANSWERS_AT_ONCE_MAX:
            self._begin(subject.decode(), reply, data)
        elif len(self._waiting) < limits.ANSWERS_WAITING_MAX:
            self._waiting.append((subject.decode(), reply, data))
        else:
            log.warning("bus.question_dropped", subject=subject.decode())  # whoever asked hears nothing in time

    def _begin(self, subject: str, reply: bytes, data: bytes) -> None:
        try:
            answering = asyncio.ensure_future(self._handler(subject, data))
        except Exception:
            log.exception("bus.handler_failed", subject=subject)
            return
        self._under_way.add(answering)
        answering.add_done_callback(partial(self._over, subject, reply))

    def _over(self, subject: str, reply: bytes, answering: "asyncio.Future[bytes]") -> None:
        self._under_way.discard(answering)
        if self._waiting:
            self._begin(*self._waiting.popleft())
        if answering.cancelled():
            return
        error = answering.exception()
        if error is not None:
            log.error("bus.handler_failed", subject=subject, exc_info=error)
        elif self._line.is_connected:
            self._line.send(wire.publication(reply.decode(), answering.result()))
        else:
            log.debug("bus.answer_unsent", subject=subject)  # whoever asked has noticed by now
