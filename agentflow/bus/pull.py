"""Continuous pull: keeps a request for messages standing at a durable consumer, and renews it before it runs out.

Given a `Line` and a way to (re)create the consumer by `nats_jetstream`; feeds the subscriber's handler. Credit asked
for and deliveries not yet settled never exceed `in_flight_max` together: that is the back-pressure.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from agentflow import limits
from agentflow.bus import wire
from agentflow.contracts.message import Message, decode
from agentflow.errors import AgentFlowError
from agentflow.ports import Consumer, Delivery

log = structlog.get_logger(__name__)

BATCH_MAX = 1_000  # one request's worth: large enough that renewing it costs nothing per message
EXPIRES_S = limits.PULL_EXPIRES_S
HEARTBEAT_S = limits.PULL_HEARTBEAT_S  # the server speaks at least this often while a request stands
SILENCE_S_MAX = 2 * HEARTBEAT_S
HANDLER_FAULT_DELAY_S = 1.0  # a handler that raises would otherwise get the same message back at once, for ever

# Whether messages wait for the consumer that it does not hand out.
HasWaiting = Callable[[Consumer], Awaitable[bool]]
# Removes the consumer, keeping what it has not seen acked.
DropConsumer = Callable[[Consumer], Awaitable[None]]
# Makes sure the consumer exists and says which one it is: as before, or a new one under the same name.
EnsureConsumer = Callable[[Consumer, str], Awaitable[str]]


def credit_wanted(*, in_flight_max: int, unsettled: int, outstanding: int) -> int:
    """How many messages to ask for now: up to the limit again once half of what may stand is used, else none."""
    allowed = min(in_flight_max - unsettled, BATCH_MAX)
    return allowed - outstanding if allowed > 0 and outstanding * 2 <= allowed else 0


class _PulledDelivery:
    __slots__ = ("_pull", "_subject", "deliveries", "message", "reply", "sequence")

    def __init__(
        self, pull: "ContinuousPull", subject: bytes, message: Message, reply: bytes, at: wire.Position
    ) -> None:
        self._pull = pull
        self._subject = subject
        self.message = message
        self.reply = reply
        self.deliveries = at.deliveries
        self.sequence = at.sequence

    @property
    def pool(self) -> str:
        return wire.pool_of(self._subject)

    def ack(self) -> None:
        self._pull.settle(self, wire.ACK)

    def nak(self, delay_s: float = 0.0) -> None:
        self._pull.settle(self, wire.give_back(delay_s))

    def working(self) -> None:
        self._pull.extend(self)


class ContinuousPull:
    def __init__(
        self,
        line: wire.Line,
        consumer: Consumer,
        handler: Callable[[Delivery], None],
        *,
        ensure: EnsureConsumer,
        has_waiting: HasWaiting,
        drop: DropConsumer,
        stall_s: float,
        on_stop: Callable[["ContinuousPull"], None],
    ) -> None:
        self._has_waiting = has_waiting
        self._drop = drop
        self._stall_s = stall_s
        self._fed_at = 0.0
        self._stalls = 0
        self._line = line
        self._consumer = consumer
        self._handler = handler
        self._ensure = ensure
        self._on_stop = on_stop
        self._loop = asyncio.get_running_loop()
        self._log = log.bind(stream=consumer.stream, consumer=consumer.name)
        self._inbox: wire.Inbox | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._heard_at = 0.0
        self._stopped = False
        self._renewal_due = False
        # Asked for and not yet delivered.
        self._outstanding = 0
        # By sequence: a message that comes again takes the place of its earlier delivery, whose ack is then void.
        self._unsettled: dict[int, _PulledDelivery] = {}
        # Which consumer the unsettled deliveries came from, and answers that wait until we know it is still that one:
        # after a wipe the same sequence is another message, and a late ack would silently swallow it.
        self._source = ""
        self._holding = False
        self._cuts = 0
        self._held: list[bytes] = []

    async def start(self) -> None:
        await self._begin()
        self._keeper = asyncio.create_task(self._keep(), name=f"pull {self._consumer.name}")

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._on_stop(self)
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        # Without interest in the inbox the server drops what we asked for; what still arrives is given back at once.
        if self._inbox is not None:
            await self._inbox.close()

    def cut(self) -> None:
        """The line is down: keep answers until it is clear whom they would reach."""
        self._holding = True
        self._cuts += 1

    def lose(self) -> None:
        """What we asked for is gone (the line was cut, the consumer deleted): begin again."""
        self._lost.set()

    def settle(self, delivery: _PulledDelivery, verdict: bytes) -> None:
        if self._unsettled.get(delivery.sequence) is not delivery:
            return
        del self._unsettled[delivery.sequence]
        self._renew_soon()
        self._answer(wire.answer(delivery.reply, verdict))

    def extend(self, delivery: _PulledDelivery) -> None:
        if self._unsettled.get(delivery.sequence) is delivery and not self._holding:
            self._line.send(wire.answer(delivery.reply, wire.WORKING))

    def _answer(self, command: bytes) -> None:
        if self._holding or not self._line.is_connected:
            self._held.append(command)
        else:
            self._line.send(command)

    def _arrived(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self._heard_at = self._loop.time()
        if not wire.is_delivery(reply):
            self._told(wire.status(headers))
            return
        if self._stopped:
            self._line.send(wire.answer(reply, wire.give_back(0)))
            return
        self._outstanding -= 1
        self._fed_at = self._heard_at
        self._stalls = 0
        self._renew_soon()
        at = wire.position(reply)
        try:
            message = decode(data)
        except AgentFlowError as error:
            self._log.warning("bus.message_refused", sequence=at.sequence, reason=error.message)
            self._answer(wire.answer(reply, wire.TERMINATE))
            return
        delivery = _PulledDelivery(self, subject, message, reply, at)
        self._unsettled[at.sequence] = delivery
        try:
            self._handler(delivery)
        except Exception:
            log.exception("bus.handler_failed", consumer=self._consumer.name, message=message.id)
            delivery.nak(HANDLER_FAULT_DELAY_S)

    def _told(self, status: wire.Status | None) -> None:
        if status is None or status.code == 100:  # an idle heartbeat: all is well
            return
        if status.unused is not None and status.code in (404, 408):  # the request ran its time
            self._outstanding -= status.unused
            self._renew_soon()
            return
        # 409: the consumer was deleted, its leader changed, the server shuts down. 503: nobody is there to answer.
        self._log.info("bus.pull_ended", code=status.code, reason=status.text)
        self.lose()

    def _renew_soon(self) -> None:
        """Once for all that happens in this turn of the loop."""
        if not self._renewal_due:
            self._renewal_due = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._renewal_due = False
        if self._stopped or self._holding or self._inbox is None:
            return
        batch = credit_wanted(
            in_flight_max=self._consumer.in_flight_max,
            unsettled=len(self._unsettled),
            outstanding=self._outstanding,
        )
        if batch <= 0:
            return
        if self._outstanding == 0:
            self._heard_at = self._loop.time()  # silence counts from when there is something to be heard
        self._outstanding += batch
        self._line.send(
            wire.pull_request(
                self._consumer.stream,
                self._consumer.name,
                batch=batch,
                expires_s=EXPIRES_S,
                heartbeat_s=HEARTBEAT_S,
                reply=f"{self._inbox.subject}.pull",
            )
        )

    async def _keep(self) -> None:
        while not self._stopped:
            await self._wait_lost()
            self._log.info("bus.pull_restarted")
            await self._begin()

    async def _wait_lost(self) -> None:
        """Returns when told so, when the server is silent for longer than promised, or when nothing is handed out."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._lost.wait()
                    return
            if self._outstanding > 0 and self._loop.time() - self._heard_at > SILENCE_S_MAX:
                return
            if await self._is_stalled():
                return

    async def _is_stalled(self) -> bool:
        """The server speaks, messages wait, we ask, and none comes: known of JetStream, cured by beginning anew.

        First only the request for messages is made again, on a new inbox; when that did not help, the consumer is.
        """
        if self._outstanding <= 0 or self._loop.time() - self._fed_at < self._stall_s:
            return False
        self._fed_at = self._loop.time()  # looked at now; the next look is a whole span away
        if not await self._has_waiting(self._consumer):
            return False
        self._stalls += 1
        self._log.error("bus.consumer_stalled", silent_s=self._stall_s, times=self._stalls)
        if self._stalls > 1:
            await self._drop(self._consumer)
        return True

    async def _begin(self) -> None:
        """A new inbox each time, so that requests made for an old one cannot add to what we ask for now."""
        self._holding = True
        self._lost.clear()
        cuts = self._cuts
        if self._inbox is not None:
            await self._inbox.close()
        source = await self._ensure(self._consumer, self._source)
        if source != self._source:
            self._source = source
            self._unsettled.clear()
            self._held.clear()
        self._inbox = await self._line.open_inbox(self._arrived)
        self._fed_at = self._loop.time()
        self._outstanding = 0
        self._holding = self._lost.is_set() or self._cuts != cuts
        if not self._holding:
            held, self._held = self._held, []
            for command in held:
                self._line.send(command)
            self._renew()
