"""Publishes that wait for the stream to say it has stored them, any number at once.

Given a `Line` by `nats_jetstream`, which calls `send_again` when a cut line is whole again: what has no answer is
then sent a second time, and its de-duplication id makes that harmless. Knows nothing of what is published.
"""

import asyncio
from collections.abc import Callable
from itertools import count

import msgspec

from agentflow.bus import wire
from agentflow.ports import BusUnavailable


class _Refusal(msgspec.Struct):
    description: str = "no reason given"


class _PubAck(msgspec.Struct):
    error: _Refusal | None = None


_read_ack = msgspec.json.Decoder(_PubAck).decode


class _Waiting:
    __slots__ = ("command", "deadline", "future", "trouble")

    def __init__(self, command: bytes, deadline: float, future: asyncio.Future[None]) -> None:
        self.command = command
        self.deadline = deadline
        self.future = future
        self.trouble = "no answer"


class Confirmations:
    """`on_no_stream` is called when no stream took a publish: JetStream is still starting, or its store was wiped."""

    def __init__(self, line: wire.Line, *, within_s: float, on_no_stream: Callable[[], None]) -> None:
        self._line = line
        self._on_no_stream = on_no_stream
        self._within_s = within_s
        self._loop = asyncio.get_running_loop()
        self._tokens = count()
        # All wait equally long, so the order of insertion is the order of the deadlines.
        self._waiting: dict[bytes, _Waiting] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._inbox: wire.Inbox | None = None

    async def open(self) -> None:
        self._inbox = await self._line.open_inbox(self._answered)

    async def publish(self, subject: str, payload: bytes, *, headers: bytes) -> None:
        if self._inbox is None:
            raise BusUnavailable("the connection is not open")
        token = b"%d" % next(self._tokens)
        reply = f"{self._inbox.subject}.{token.decode()}"
        command = wire.publication(subject, payload, reply=reply, headers=headers)
        waiting = _Waiting(command, self._loop.time() + self._within_s, self._loop.create_future())
        self._waiting[token] = waiting
        self._line.send(command)
        if self._alarm is None:
            self._alarm = self._loop.call_at(waiting.deadline, self._give_up_the_oldest)
        try:
            await waiting.future
        finally:
            self._waiting.pop(token, None)

    def send_again(self) -> None:
        for waiting in self._waiting.values():
            self._line.send(waiting.command)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(BusUnavailable("this process is leaving the bus"))

    def _answered(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        waiting = self._waiting.get(subject.rpartition(b".")[2])
        if waiting is None or waiting.future.done():
            return
        if headers and (status := wire.status(headers)) is not None:
            waiting.trouble = "no stream takes this subject" if status.code == 503 else status.text
            self._on_no_stream()
            return
        try:
            refusal = _read_ack(data).error
        except msgspec.DecodeError as error:
            refusal = _Refusal(f"its answer cannot be read ({error})")
        if refusal is None:
            waiting.future.set_result(None)
        else:
            waiting.future.set_exception(BusUnavailable(refusal.description))

    def _give_up_the_oldest(self) -> None:
        now = self._loop.time()
        self._alarm = None
        for waiting in self._waiting.values():
            if waiting.deadline > now:
                self._alarm = self._loop.call_at(waiting.deadline, self._give_up_the_oldest)
                return
            if not waiting.future.done():
                reason = waiting.trouble if self._line.is_connected else "the connection is down"
                waiting.future.set_exception(BusUnavailable(f"{reason} within {self._within_s:g} s"))
