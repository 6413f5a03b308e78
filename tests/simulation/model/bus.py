"""A bus with JetStream's promises and none beyond: it keeps, hands out again, forgets, doubles, and is cut off.

`Broker` is the server, `SimulatedBus` a process's line to it (`agentflow.ports.MessageBus`). What was measured of the
real one is modelled as it is: doubles are known by id for a while and not after a wipe; a durable consumer hands out
again what is not acked in time, and counts; a line that is cut loses what was on it.
"""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from agentflow import limits
from agentflow.bus import subjects
from agentflow.contracts.bundle import ResultsTaken, opened
from agentflow.contracts.message import Message, decode, encode
from agentflow.contracts.step import StepRequest
from agentflow.ports import Backlog, BusUnavailable, Consumer, Delivery, NobodyListens, Subscription
from tests.simulation.model.chance import Fates
from tests.simulation.model.loop import Process, SimulatedLoop


class _Stored:
    __slots__ = ("deliveries", "hold", "raw", "sequence", "subject")

    def __init__(self, sequence: int, subject: str, raw: bytes) -> None:
        self.sequence = sequence
        self.subject = subject
        self.raw = raw
        self.deliveries = 0
        self.hold = 0  # which handing-out is current: an earlier one's time-out says nothing any more


class _Queue:
    """What waits for one durable consumer: JetStream's stored messages of its subjects, in order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, _Stored]] = []
        self.unacked: dict[int, _Stored] = {}
        self.readers: list[_Reader] = []
        self.ack_wait_s = limits.ACK_WAIT_S


class _Reader:
    """A subscription to a consumer. Its process may be dead or cut off without the server knowing."""

    def __init__(self, bus: "SimulatedBus", consumer: Consumer, handler: Callable[[Delivery], None]) -> None:
        self.bus = bus
        self.consumer = consumer
        self.handler = handler
        self.unsettled: dict[int, _Delivery] = {}
        self.is_stopped = False

    @property
    def has_room(self) -> bool:
        return not self.is_stopped and self.bus.is_reachable and len(self.unsettled) < self.consumer.in_flight_max

    async def stop(self) -> None:
        self.is_stopped = True
        self.bus.broker.leave(self)


class _Delivery:
    __slots__ = ("_age", "_reader", "_stored", "deliveries", "message", "pool")

    def __init__(self, reader: _Reader, stored: _Stored, message: Message) -> None:
        self._reader = reader
        self._stored = stored
        self._age = reader.bus.broker.age
        self.message = message
        self.deliveries = stored.deliveries
        self.pool = stored.subject.rpartition(".")[2]

    def ack(self) -> None:
        self._settle(lambda broker, queue: broker.acked(queue, self._stored))

    def nak(self, delay_s: float = 0.0) -> None:
        self._settle(lambda broker, queue: broker.given_back(queue, self._stored, delay_s))

    def working(self) -> None:
        if self._reader.unsettled.get(self._stored.sequence) is self:
            self._say(lambda broker, queue: broker.extended(queue, self._stored))

    def _settle(self, verdict: Callable[["Broker", _Queue], None]) -> None:
        if self._reader.unsettled.get(self._stored.sequence) is self:
            del self._reader.unsettled[self._stored.sequence]
            self._say(verdict)

    def _say(self, verdict: Callable[["Broker", _Queue], None]) -> None:
        broker = self._reader.bus.broker
        name = self._reader.consumer.name
        age = self._age

        def heard() -> None:
            if broker.age == age:  # after a wipe the same sequence is another message
                verdict(broker, broker.queue(name))

        self._reader.bus.tell(heard)


class Broker:
    def __init__(self, loop: SimulatedLoop, fates: Fates, trace: Callable[..., None]) -> None:
        self.loop = loop
        self.fates = fates
        self.trace = trace
        self.is_up = True
        self.starts = 0
        self.age = 0  # grows with every wipe
        self.forgot = False  # ever: its store, or what it knows of doubles
        self.sent: set[tuple[str, str, int]] = set()  # attempts that it was given
        self.seen: set[str] = set()  # of what it rarely does
        self._sequence = count(1)
        self._queues: dict[str, _Queue] = {}
        self._known: dict[str, float] = {}
        self.listeners: dict[str, list[tuple[SimulatedBus, Callable[[bytes], None]]]] = {}
        self.answerers: dict[str, list[tuple[SimulatedBus, Callable[[bytes], Awaitable[bytes]]]]] = {}

    def queue(self, name: str) -> _Queue:
        return self._queues.setdefault(name, _Queue())

    def store(self, subject: str, raw: bytes, dedup_id: str) -> None:
        now_s = self.loop.time()
        known_s = self._known.get(dedup_id)
        if known_s is not None and now_s - known_s < limits.DEDUP_WINDOW_S:
            self.seen.add("double dropped")
            return
        self._known[dedup_id] = now_s
        name = _consumer_of(subject)
        if name:
            self._put(name, subject, raw)
            if self.forgot and self.fates.is_doubled():
                self._put(name, subject, raw)
        self.trace("stored", subject, dedup_id)

    def _put(self, name: str, subject: str, raw: bytes) -> None:
        stored = _Stored(next(self._sequence), subject, raw)
        queue = self.queue(name)
        heapq.heappush(queue.waiting, (stored.sequence, stored))
        self.pump(queue)

    def pump(self, queue: _Queue) -> None:
        while self.is_up and queue.waiting:
            readers = [reader for reader in queue.readers if reader.has_room]
            if not readers:
                return
            stored = heapq.heappop(queue.waiting)[1]
            self._hand_out(queue, stored, readers[int(self.fates.chance.random() * len(readers))])

    def _hand_out(self, queue: _Queue, stored: _Stored, reader: _Reader) -> None:
        stored.deliveries += 1
        if stored.deliveries > 1:
            self.seen.add("handed out again")
        queue.unacked[stored.sequence] = stored
        self._guard(queue, stored)
        delivery = _Delivery(reader, stored, decode(stored.raw))
        reader.unsettled[stored.sequence] = delivery
        self.trace("handed out", reader.consumer.name, reader.bus.process.name, stored.deliveries)
        age = self.age

        def arrive() -> None:
            if reader.bus.is_reachable and self.is_up and self.age == age:
                self.loop.inside(reader.bus.process, self._give, reader, delivery)

        self.loop.outside(arrive, after_s=self.fates.delay_s())

    def _give(self, reader: _Reader, delivery: _Delivery) -> None:
        if reader.is_stopped:
            delivery.nak()
        else:
            reader.handler(delivery)

    def _guard(self, queue: _Queue, stored: _Stored) -> None:
        """Hand it out again, unless something is heard of it in time."""
        stored.hold += 1
        hold, age = stored.hold, self.age

        def late() -> None:
            if self.age == age and stored.hold == hold and stored.sequence in queue.unacked:
                self._again(queue, stored)

        self.loop.outside(late, after_s=queue.ack_wait_s)

    def _again(self, queue: _Queue, stored: _Stored) -> None:
        queue.unacked.pop(stored.sequence, None)
        for reader in queue.readers:
            reader.unsettled.pop(stored.sequence, None)
        heapq.heappush(queue.waiting, (stored.sequence, stored))
        self.pump(queue)

    def acked(self, queue: _Queue, stored: _Stored) -> None:
        """Also by one who had it before: the server cannot tell."""
        queue.unacked.pop(stored.sequence, None)
        queue.waiting = [one for one in queue.waiting if one[1] is not stored]
        heapq.heapify(queue.waiting)
        self.pump(queue)

    def given_back(self, queue: _Queue, stored: _Stored, delay_s: float) -> None:
        if stored.sequence in queue.unacked:
            stored.hold += 1
            hold, age = stored.hold, self.age

            def again() -> None:
                if self.age == age and stored.hold == hold and stored.sequence in queue.unacked:
                    self._again(queue, stored)

            self.loop.outside(again, after_s=delay_s)

    def extended(self, queue: _Queue, stored: _Stored) -> None:
        if stored.sequence in queue.unacked:
            self._guard(queue, stored)

    def leave(self, reader: _Reader) -> None:
        queue = self.queue(reader.consumer.name)
        if reader in queue.readers:
            queue.readers.remove(reader)

    def died(self, process: Process) -> None:
        """The server notices that a connection is gone."""
        for queue in self._queues.values():
            queue.readers = [reader for reader in queue.readers if reader.bus.process is not process]
        for places in (self.listeners, self.answerers):
            for subject, entries in places.items():
                places[subject] = [entry for entry in entries if entry[0].process is not process]

    def back(self) -> None:
        for queue in self._queues.values():
            self.pump(queue)

    def wipe(self) -> None:
        self.trace("bus wiped")
        self.age += 1
        self.forgot = True
        self._known.clear()
        for queue in self._queues.values():
            queue.waiting.clear()
            queue.unacked.clear()
            for reader in queue.readers:
                reader.unsettled.clear()


def _consumer_of(subject: str) -> str:
    """The durable consumer whose subjects this one is among; none for what is only listened to."""
    kind, name, *rest = subject.split(".")
    if kind == "agents":
        return f"agent_{rest[0]}@{name}"
    return f"shard_{rest[1]}" if rest[:1] == ["in"] else ""


class _Listening:
    def __init__(self, entries: list[Any], entry: Any) -> None:
        self._entries = entries
        self._entry = entry

    async def stop(self) -> None:
        if self._entry in self._entries:
            self._entries.remove(self._entry)


class SimulatedBus:
    def __init__(self, broker: Broker, process: Process) -> None:
        self.broker = broker
        self.process = process
        self.is_cut = False
        self._mends = 0
        self._loop = broker.loop
        self._fates = broker.fates

    @property
    def is_reachable(self) -> bool:
        return not self.is_cut and self.broker.is_up

    @property
    def connected(self) -> bool:
        return self.is_reachable

    @property
    def line(self) -> int:
        return self._mends + self.broker.starts

    def mend(self) -> None:
        self.is_cut = False
        self._mends += 1
        self.broker.back()

    def tell(self, heard: Callable[[], None]) -> None:
        """One way, without an answer: lost when the line is cut."""
        if self.is_reachable and not self._fates.is_lost():

            def arrive() -> None:
                if self.broker.is_up:
                    heard()

            self._loop.outside(arrive, after_s=self._fates.delay_s())

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")
        raw = encode(message)
        if subject.startswith("agents."):
            step, _, attempt = dedup_id.rpartition("#")
            execution, _, path = step.partition("/")
            self.broker.sent.add((execution, path, int(attempt)))
        if not confirm:
            self.tell(lambda: self.broker.store(subject, raw, dedup_id))
            return
        stored: Any = self._loop.create_future()

        def keep() -> None:
            if not self.broker.is_up or self.is_cut:
                return
            self.broker.store(subject, raw, dedup_id)
            if not self._fates.is_lost():
                self._loop.outside(_done, stored, after_s=self._fates.delay_s())

        if not self._fates.is_lost():
            self._loop.outside(keep, after_s=self._fates.delay_s())
        self._loop.outside(_refused, stored, "no answer", after_s=limits.BUS_CONFIRM_S)
        await stored

    async def subscribe(self, consumer: Consumer, handler: Callable[[Delivery], None]) -> Subscription:
        await self._round_trip()
        reader = _Reader(self, consumer, handler)
        queue = self.broker.queue(consumer.name)
        queue.ack_wait_s = consumer.ack_wait_s
        queue.readers.append(reader)
        self.broker.pump(queue)
        return reader

    def replay(self, stream: str, *, from_sequence: int = 1) -> AsyncIterator[Message]:
        raise NotImplementedError  # nobody here asks for it

    async def backlog(self, consumer: Consumer) -> Backlog:
        await self._round_trip()
        queue = self.broker.queue(consumer.name)
        return Backlog(waiting=len(queue.waiting), unacked=len(queue.unacked))

    async def broadcast(self, subject: str, payload: bytes) -> None:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")

        def spread() -> None:
            for bus, handler in _who_hear(self.broker.listeners, subject):
                if bus.is_reachable and not self._fates.is_lost():
                    self._loop.inside(bus.process, handler, payload)

        self.tell(spread)

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> Subscription:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")
        entries = self.broker.listeners.setdefault(subject, [])
        entries.append((self, handler))
        return _Listening(entries, entries[-1])

    async def listen_pools(self, subject: str, handler: Callable[[str, bytes], None]) -> Subscription:
        return await self.listen(f"{subject}.*", handler)  # type: ignore[arg-type]  # told apart by its subject

    async def request(self, subject: str, payload: bytes, *, within_s: float) -> bytes:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")
        answer: Any = self._loop.create_future()
        entries = [entry for entry in _who_hear(self.broker.answerers, subject) if entry[0].is_reachable]
        if not entries:
            raise NobodyListens(f"nobody answers {subject}")
        bus, handler = entries[int(self._fates.chance.random() * len(entries))]

        async def give() -> None:
            said = await handler(payload)
            if subject.startswith(subjects.direct_results("")):
                self.broker.sent.update(_steps_in(said))
            if bus.is_reachable and self.is_reachable and not self._fates.is_lost():
                self._loop.outside(_done, answer, said, after_s=self._fates.delay_s())

        def ask() -> None:
            if bus.process.is_alive and bus.is_reachable:
                self._loop.spawn(bus.process, give())

        self.tell(ask)
        self._loop.outside(_refused, answer, f"no answer on {subject}", after_s=within_s)
        said: bytes = await answer
        return said

    async def answer(
        self, subject: str, handler: Callable[[bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")
        entries = self.broker.answerers.setdefault(subject, [])
        entries.append((self, handler))
        return _Listening(entries, entries[-1])

    async def answer_pools(
        self, subject: str, handler: Callable[[str, bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        return await self.answer(f"{subject}.*", handler, group=group)  # type: ignore[arg-type]

    async def _round_trip(self) -> None:
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")
        there: Any = self._loop.create_future()
        self._loop.outside(_done, there, after_s=self._fates.delay_s())
        await there
        if not self.is_reachable:
            raise BusUnavailable("the connection is down")


def _who_hear(entries: dict[str, list[Any]], subject: str) -> list[Any]:
    """Those of this very subject, and those of every pool's, who are told which it was."""
    stem, _, pool = subject.rpartition(".")
    of_pools = [(bus, partial(handler, pool)) for bus, handler in entries.get(f"{stem}.*", ())]
    return [*entries.get(subject, ()), *of_pools]


def _steps_in(answer: bytes) -> Iterator[tuple[str, str, int]]:
    """What goes straight back to a worker with the answer to its results."""
    for step in opened(answer, ResultsTaken).steps:
        request = step.read(StepRequest)
        yield request.execution_id, request.path, request.attempt


def _done(future: Any, value: Any = None) -> None:
    if not future.done():
        future.set_result(value)


def _refused(future: Any, reason: str) -> None:
    if not future.done():
        future.set_exception(BusUnavailable(reason))
