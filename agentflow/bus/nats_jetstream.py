"""The one door to NATS: `ports.MessageBus` on JetStream.

Composition roots open it with `jetstream(...)`; `confirmations`, `requests`, `pull` and `stored` do the work on the
line that `nats_connection` gives them. Holds no message longer than NATS asks for: the database is the truth, this is
transport.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TypeVar
from urllib.parse import urlsplit

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js import api
from nats.js.errors import APIError, NotFoundError
from nats.js.manager import JetStreamManager

from agentflow import limits
from agentflow.bus import wire
from agentflow.bus.answers import Answers, Handler
from agentflow.bus.confirmations import Confirmations
from agentflow.bus.nats_connection import ANSWER_WITHIN_S, Connection, cancellable
from agentflow.bus.permissions import inbox_prefix
from agentflow.bus.pull import ContinuousPull
from agentflow.bus.requests import Requests
from agentflow.bus.stored import stored_messages
from agentflow.bus.subjects import STREAMS, StreamSpec
from agentflow.contracts.message import Message, encode
from agentflow.errors import Rejected
from agentflow.ports import Backlog, BusUnavailable, Consumer, Delivery, Subscription

log = structlog.get_logger(__name__)

T = TypeVar("T")

_RECONNECT_S = 0.1
_RECONNECT_S_MAX = 2.0
_PING_S = 5.0  # nats-py gives a silent connection up after two unanswered pings
_RETRY_S = 0.1
_REPLAY_IDLE_S = 60.0  # a reader that pauses for longer finds its place in the stream gone
_STREAM_EXISTS_OTHERWISE = 10058


class StreamRefused(Rejected):
    code = "AF2304"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"NATS refuses to set up our streams: {reason}.",
            hint="Check AF_NATS_REPLICAS against the size of the cluster, and the account's JetStream limits.",
        )


class _Listening:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def stop(self) -> None:
        with contextlib.suppress(nats.errors.Error):
            await self._subscription.unsubscribe()


class JetStreamBus:
    """Made by `jetstream`, which opens and closes it."""

    def __init__(
        self,
        connection: Connection,
        *,
        replicas: int,
        tends_streams: bool,
        confirm_within_s: float,
        stall_after_s: float,
    ) -> None:
        self._connection = connection
        self._tends_streams = tends_streams
        self._stall_after_s = stall_after_s
        self._replicas = replicas
        self._api = JetStreamManager(connection, timeout=ANSWER_WITHIN_S)
        self._torn = asyncio.Event()
        self._confirmations = Confirmations(connection, within_s=confirm_within_s, on_no_stream=self._torn.set)
        self._requests = Requests(connection)
        self._pulls: set[ContinuousPull] = set()
        self._mender: asyncio.Task[None] | None = None
        self._trouble: Exception | None = None
        self._line = 0

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        payload = encode(message)
        headers = wire.message_headers(message, dedup_id)
        self._require_fitting(len(payload) + len(headers))
        await self._connection.wait_writable()
        if confirm:
            await self._confirmations.publish(subject, payload, headers=headers)
        else:
            self._send(wire.publication(subject, payload, headers=headers))

    async def subscribe(self, consumer: Consumer, handler: Callable[[Delivery], None]) -> Subscription:
        pull = ContinuousPull(
            self._connection,
            consumer,
            handler,
            ensure=self._ensure_consumer,
            has_waiting=self._has_waiting,
            drop=self._drop_consumer,
            stall_s=self._stall_after_s,
            on_stop=self._pulls.discard,
        )
        self._pulls.add(pull)
        try:
            async with asyncio.timeout(limits.BUS_CONFIRM_S):
                await pull.start()
        except BaseException as error:
            await pull.stop()
            if isinstance(error, TimeoutError):
                raise BusUnavailable(f"the consumer {consumer.name} could not be set up in time") from None
            raise
        return pull

    async def replay(self, stream: str, *, from_sequence: int = 1) -> AsyncIterator[Message]:
        about = await self._ask(lambda: self._api.stream_info(stream))
        if about is None:
            raise BusUnavailable(f"there is no stream {stream}")
        if from_sequence > about.state.last_seq:
            return
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(1, from_sequence),
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=_REPLAY_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        )
        reader = await self._ask(lambda: self._api.add_consumer(stream, config))
        if reader is None or not reader.num_pending:
            return
        messages = stored_messages(
            self._connection, stream=stream, consumer=reader.name, last_sequence=about.state.last_seq
        )
        async with contextlib.aclosing(messages):
            async for message in messages:
                yield message

    async def backlog(self, consumer: Consumer) -> Backlog:
        info = await self._ask(lambda: self._api.consumer_info(consumer.stream, consumer.name))
        if info is not None:
            return Backlog(waiting=info.num_pending or 0, unacked=info.num_ack_pending or 0)
        return Backlog(
            waiting=sum([await self._stored(consumer.stream, each) for each in consumer.subjects]), unacked=0
        )

    async def _stored(self, stream: str, subject: str) -> int:
        about = await self._ask(lambda: self._api.stream_info(stream, subjects_filter=subject))
        return sum((about.state.subjects or {}).values()) if about is not None else 0

    @property
    def connected(self) -> bool:
        return self._connection.is_connected

    @property
    def line(self) -> int:
        """Which connection this is: another one after every cut."""
        return self._line

    async def broadcast(self, subject: str, payload: bytes) -> None:
        self._send(wire.publication(subject, payload))

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> Subscription:
        return await self._listen(subject, lambda arrival: handler(arrival.data))

    async def listen_pools(self, subject: str, handler: Callable[[str, bytes], None]) -> Subscription:
        return await self._listen(f"{subject}.*", lambda arrival: handler(wire.pool_of(arrival.subject), arrival.data))

    async def _listen(self, subject: str, handler: Callable[[Msg], None]) -> Subscription:
        async def heard(arrival: Msg) -> None:
            try:
                handler(arrival)
            except Exception:
                log.exception("bus.handler_failed", subject=arrival.subject)

        try:
            return _Listening(await self._connection.subscribe(subject, cb=heard))
        except nats.errors.Error as error:
            raise BusUnavailable(str(error)) from None

    async def request(self, subject: str, payload: bytes, *, within_s: float) -> bytes:
        self._require_fitting(len(payload))
        return await self._requests.ask(subject, payload, within_s=within_s)

    async def answer(
        self, subject: str, handler: Callable[[bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        return await self._answer(subject, lambda _, asked: handler(asked), group)

    async def answer_pools(
        self, subject: str, handler: Callable[[str, bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        return await self._answer(f"{subject}.*", lambda where, asked: handler(wire.pool_of(where), asked), group)

    async def _answer(self, subject: str, handler: Handler, group: str) -> Subscription:
        return await self._connection.open_sink(subject, Answers(self._connection, handler).asked, group=group)

    async def open(self) -> None:
        await self._until_done(self._ensure_streams)
        await self._confirmations.open()
        await self._requests.open()
        self._mender = asyncio.create_task(self._mend(), name="bus mender")

    async def close(self) -> None:
        if self._mender is not None:
            self._mender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._mender
        for pull in list(self._pulls):
            await pull.stop()
        self._confirmations.close()
        self._requests.close()
        await self._connection.wait_round_trip()

    def why_not_open(self, error: Exception, url: str, within_s: float) -> StreamRefused | BusUnavailable:
        trouble = self._trouble or self._connection.last_error or error
        if isinstance(trouble, APIError) and trouble.description:
            return StreamRefused(trouble.description)
        reason = str(trouble) or type(trouble).__name__
        return BusUnavailable(f"no JetStream at {url} within {within_s:g} s ({reason})")

    def on_disconnected(self) -> None:
        self._line += 1
        self._connection.forget_unsent()
        self._requests.refuse_all("the connection was cut")
        for pull in self._pulls:
            pull.cut()

    def on_reconnected(self) -> None:
        self._torn.set()
        for pull in self._pulls:
            pull.lose()

    def _require_fitting(self, size_bytes: int) -> None:
        """NATS ends the connection of whoever sends more."""
        max_bytes = min(limits.BUS_MESSAGE_BYTES_MAX, self._connection.max_payload)
        if size_bytes > max_bytes:
            raise wire.MessageTooLarge(size_bytes, max_bytes)

    def _send(self, command: bytes) -> None:
        if not self._connection.is_connected:
            raise BusUnavailable("the connection is down")
        self._connection.send(command)

    async def _mend(self) -> None:
        """After a cut, or when a publish found no stream: streams first (the store may be new), then what waits."""
        while True:
            await self._torn.wait()
            self._torn.clear()
            await self._until_done(self._ensure_streams)
            self._confirmations.send_again()
            await asyncio.sleep(_RETRY_S)  # a subject that no stream takes must not become a busy loop

    async def _ensure_streams(self) -> None:
        for spec in STREAMS:
            config = _stream_config(spec, self._replicas)
            if not self._tends_streams and await self._has_stream(spec.name):
                continue
            try:
                await self._api.add_stream(config)
            except APIError as error:
                if error.err_code != _STREAM_EXISTS_OTHERWISE:
                    raise
                await self._api.update_stream(config)

    async def _has_stream(self, name: str) -> bool:
        try:
            await self._api.stream_info(name)
        except NotFoundError:
            return False
        return True

    async def _ensure_consumer(self, consumer: Consumer, known: str) -> str:
        async def ensure() -> str:
            try:
                info = await self._api.add_consumer(consumer.stream, _consumer_config(consumer))
            except NotFoundError:
                await self._ensure_streams()
                raise
            if known and str(info.created) != known:
                # A server that has just restarted first shows when it read the consumer back, then when it was made.
                await asyncio.sleep(_RETRY_S)
                info = await self._api.consumer_info(consumer.stream, consumer.name)
            return str(info.created)

        return await self._until_done(ensure)

    async def _has_waiting(self, consumer: Consumer) -> bool:
        try:
            return (await self.backlog(consumer)).waiting > 0
        except BusUnavailable:
            return False

    async def _drop_consumer(self, consumer: Consumer) -> None:
        """So that it is made anew. Its acked past goes first: a new consumer begins at what is stored, and would hand
        out days of finished steps again."""

        async def drop() -> None:
            info = await self._api.consumer_info(consumer.stream, consumer.name)
            floor = info.ack_floor.stream_seq if info.ack_floor else 0
            for subject in consumer.subjects if floor else ():
                await self._api.purge_stream(consumer.stream, seq=floor + 1, subject=subject)
            await self._api.delete_consumer(consumer.stream, consumer.name)

        try:
            await cancellable(drop())
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("bus.consumer_not_dropped", consumer=consumer.name, reason=str(error))

    async def _until_done(self, attempt: Callable[[], Coroutine[None, None, T]]) -> T:
        """Try until it works; whoever cannot wait for ever sets a deadline around it."""
        while True:
            if self._connection.is_connected:
                try:
                    return await cancellable(attempt())
                except (nats.errors.Error, TimeoutError) as error:
                    self._trouble = error
                    log.debug("bus.not_ready", reason=str(error))
            await asyncio.sleep(_RETRY_S)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the JetStream API; None where it says that the thing does not exist."""
        if not self._connection.is_connected:
            raise BusUnavailable("the connection is down")
        try:
            return await question()
        except NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailable(str(error)) from None


@contextlib.asynccontextmanager
async def jetstream(
    url: str,
    *,
    name: str,
    replicas: int = 1,
    tends_streams: bool = True,
    connect_within_s: float = 10.0,
    confirm_within_s: float = limits.BUS_CONFIRM_S,
    stall_after_s: float = limits.CONSUMER_STALL_S,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[JetStreamBus]:
    """A bus that is connected and has its streams; leaving the block stops its subscriptions and closes it.

    Who does not tend streams takes them as they are, and makes only those that are missing.
    """
    connection = Connection(encrypted=url.startswith("tls://"))
    bus = JetStreamBus(
        connection,
        replicas=replicas,
        tends_streams=tends_streams,
        confirm_within_s=confirm_within_s,
        stall_after_s=stall_after_s,
    )
    try:
        try:
            async with asyncio.timeout(connect_within_s):
                await _connect(connection, bus, url, name, tls)
                await bus.open()
        except (nats.errors.Error, TimeoutError) as error:
            raise bus.why_not_open(error, _without_password(url), connect_within_s) from None
        yield bus
    finally:
        await bus.close()
        await connection.leave()


async def _connect(connection: Connection, bus: JetStreamBus, url: str, name: str, tls: ssl.SSLContext | None) -> None:
    async def disconnected() -> None:
        bus.on_disconnected()
        log.warning("bus.disconnected", name=name)

    async def reconnected() -> None:
        failures.clear()
        bus.on_reconnected()
        log.info("bus.reconnected", name=name)

    failures: list[float] = []

    async def failed(error: Exception) -> None:
        if not connection.is_connected:
            failures.append(reconnect_pause_s(len(failures), random.random()))  # noqa: S311 - not a secret
            connection.options["reconnect_time_wait"] = failures[-1]
        # While the line is down every attempt fails; saying so ten times a second helps nobody.
        level = log.warning if connection.is_connected else log.debug
        level("bus.connection_error", name=name, reason=str(error) or type(error).__name__)

    user = urlsplit(url).username
    await connection.connect(
        url,
        name=name,
        inbox_prefix=inbox_prefix(user) if user and urlsplit(url).password else "_INBOX",
        error_cb=failed,
        disconnected_cb=disconnected,
        reconnected_cb=reconnected,
        reconnect_time_wait=_RECONNECT_S,  # type: ignore[arg-type]  # a pause in seconds; nats-py only says int
        max_reconnect_attempts=-1,
        ping_interval=_PING_S,  # type: ignore[arg-type]  # likewise
        tls=tls,
    )


def reconnect_pause_s(failures: int, chance: float) -> float:
    """Growing, and different for everybody: a thousand workers must not come back in the same moment."""
    return _RECONNECT_S * 0.5 + chance * min(_RECONNECT_S_MAX, _RECONNECT_S * 1.5 ** min(failures, 32))


def _stream_config(spec: StreamSpec, replicas: int) -> api.StreamConfig:
    return api.StreamConfig(
        name=spec.name,
        subjects=list(spec.subjects),
        retention=api.RetentionPolicy.LIMITS,
        storage=api.StorageType.FILE,
        max_age=spec.max_age_s,
        num_replicas=replicas,
        duplicate_window=limits.DEDUP_WINDOW_S,
    )


def _consumer_config(consumer: Consumer) -> api.ConsumerConfig:
    return api.ConsumerConfig(
        name=consumer.name,
        durable_name=consumer.name,
        # One subject is part of the request's own subject, which permissions can hold a worker to.
        filter_subject=consumer.subjects[0] if len(consumer.subjects) == 1 else None,
        filter_subjects=list(consumer.subjects) if len(consumer.subjects) > 1 else None,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=consumer.ack_wait_s,
        max_deliver=-1,
        max_ack_pending=consumer.unacked_max,
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"
