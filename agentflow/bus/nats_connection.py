"""A NATS connection as our hot path needs it: nats-py's client with a short way in and a short way out.

Made by `nats_jetstream`, used by the other parts as their `wire.Line`. The only file that touches what nats-py keeps
private; reconnecting, and whatever is not a delivery or a publish, stay nats-py's.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.subscription import Subscription as NatsSubscription

from agentflow.bus import wire
from agentflow.bus.nats_parser import DeliveryParser
from agentflow.ports import BusUnavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

ANSWER_WITHIN_S = 2.0  # a question to the server itself, not to a stream
_UNSENT_BYTES_MAX = 2 * 1024 * 1024
# What one turn of the loop sends goes out in parts of this size, so that whoever gets it can begin while we go on.
_PART_BYTES = 32 * 1024


class Connection(Client):
    """nats-py's public path makes a coroutine, a header dict, a Msg, a queue entry and a task switch for each message.

    At our rates that is most of the cost, so bytes go straight into its write buffer and straight from its parser.
    """

    def __init__(self, *, encrypted: bool) -> None:
        """`encrypted`: rather not at all than in the clear, whatever the server says that it can do."""
        super().__init__()
        self._encrypted = encrypted
        self._sinks: dict[int, wire.Sink] = {}
        self._ps = DeliveryParser(self, self._delivered)
        self._write_due = False

    def _connect_command(self) -> bytes:
        """With the credential in it. nats-py speaks TLS only where the server's first words ask for it."""
        writer = getattr(self._transport, "_io_writer", None)
        if self._encrypted and (writer is None or writer.get_extra_info("sslcontext") is None):
            raise nats.errors.Error("the server does not speak TLS, as tls:// in its address demands")
        return super()._connect_command()

    def send(self, command: bytes) -> None:
        if not self.is_connected:
            return
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._pending_data_size >= _PART_BYTES:
            self._write()
        elif not self._write_due:
            self._write_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """What nats-py's flusher does, without waiting for a task to be woken. Its own commands keep their place."""
        self._write_due = False
        if self._pending and self.is_connected and self._transport is not None:
            self._transport.write(b"".join(self._pending))
            self._pending = []
            self._pending_data_size = 0

    async def wait_writable(self) -> None:
        while self.is_connected and self._unsent_bytes > _UNSENT_BYTES_MAX:
            await cancellable(self._drained())

    @property
    def _unsent_bytes(self) -> int:
        writer = getattr(self._transport, "_io_writer", None)  # none over WebSocket, which waits by itself
        return 0 if writer is None else int(writer.transport.get_write_buffer_size())

    async def _drained(self) -> None:
        with contextlib.suppress(OSError):  # the reader finds out as well, and knows what to do
            if self._transport is not None:
                await self._transport.drain()  # type: ignore[no-untyped-call]

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            # uvloop keeps what is below the limit until the end of its turn.
            writer.transport.set_write_buffer_limits(high=_PART_BYTES - 1, low=_PART_BYTES // 2)

    def forget_unsent(self) -> None:
        """What was meant for the old connection must not reach the new one: acks there may mean other messages.

        Nor will its answers come, so whoever waits for one need not wait for a deadline.
        """
        self._pending = []
        self._pending_data_size = 0
        for answer in self._resp_map.values():
            if not answer.done():
                answer.set_exception(nats.errors.ConnectionReconnectingError())
                answer.exception()  # seen: its waiter may have left, which asyncio would report as a fault

    async def open_inbox(self, sink: wire.Sink) -> "_Inbox":
        subject = self.new_inbox()
        return _Inbox(await self.open_sink(f"{subject}.*", sink), subject)

    async def open_sink(self, subject: str, sink: wire.Sink, *, group: str = "") -> "_Sunk":
        sid = self._sid + 1  # what `subscribe` is about to take; nothing may arrive before its sink is in place
        self._sinks[sid] = sink
        try:
            return _Sunk(self, await self.subscribe(subject, queue=group), sid)
        except nats.errors.Error as error:
            del self._sinks[sid]
            raise BusUnavailable(str(error)) from None

    def close_sink(self, sid: int) -> None:
        self._sinks.pop(sid, None)

    async def wait_round_trip(self) -> None:
        """Until the server has answered all that was sent before; not for ever."""
        if not self.is_connected:
            return
        # Not `flush(timeout)`: nats-py's reader dies of a pong that comes after its waiter has given up.
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._send_ping(pong)
        await asyncio.wait([pong], timeout=ANSWER_WITHIN_S)

    async def leave(self) -> None:
        self._disconnected_cb = None  # going is not news
        self.forget_unsent()
        if self._flush_queue is not None:  # else `connect` never began
            await self.close()

    async def _process_err(self, err_msg: str) -> None:
        """nats-py closes for good on most error lines; a service must come back instead."""
        if "permissions violation" in err_msg:
            await super()._process_err(err_msg)
            return
        error = nats.errors.Error(err_msg)
        await self._error_cb(error)
        await self._process_op_err(error)

    def _delivered(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> Awaitable[None] | None:
        sink = self._sinks.get(sid)
        if sink is None:
            return self._process_msg(sid, subject, reply, data, headers)
        try:
            sink(subject, reply, data, headers)
        except Exception:
            # An exception here would end nats-py's reader, and with it the connection, in silence.
            log.exception("bus.arrival_failed", subject=subject.decode(errors="replace"))
        return None


class _Sunk:
    """A subscription whose messages go straight into a sink."""

    def __init__(self, connection: Connection, subscription: NatsSubscription, sid: int) -> None:
        self._connection = connection
        self._subscription = subscription
        self._sid = sid

    async def stop(self) -> None:
        """Ask for no more; what is on its way is not taken."""
        self._connection.close_sink(self._sid)
        with contextlib.suppress(nats.errors.Error):
            await self._subscription.unsubscribe()

    async def drain(self) -> None:
        """Ask for no more, and wait for what is on its way."""
        with contextlib.suppress(nats.errors.Error):
            await self._subscription.unsubscribe()
            await self._connection.wait_round_trip()
        self._connection.close_sink(self._sid)


class _Inbox:
    def __init__(self, sunk: _Sunk, subject: str) -> None:
        self._sunk = sunk
        self.subject = subject

    async def close(self) -> None:
        await self._sunk.drain()


async def cancellable(work: Coroutine[None, None, T]) -> T:
    """Await work inside nats-py without losing a cancellation.

    It swallows some itself, and Python 3.11's `wait_for`, which it waits with, forgets one that comes together
    with the answer. Whoever cancels and then waits for the end would wait for ever.
    """
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait([doing])
    except asyncio.CancelledError:
        doing.cancel()
        doing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody will ask for it
        raise
    return doing.result()
