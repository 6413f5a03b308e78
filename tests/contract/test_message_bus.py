"""What every `MessageBus` must do, shown on the real server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from agentflow import limits
from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.bus.wire import MalformedEnvelope, MessageTooLarge
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, encode, seal
from agentflow.devstack.nats import NatsServer
from agentflow.ids import AgentName, UlidSource
from agentflow.ports import Backlog, BusUnavailable, Consumer, Delivery, MessageBus, NobodyListens
from agentflow.testing import eventually

AGENT = AgentName("classifier")
INBOX = subjects.agent_in("default", AGENT)

_ids = UlidSource(SystemClock().now_ms)


def a_message(payload: dict[str, Any] | None = None) -> Message:
    return seal(
        id=_ids.message(),
        trace_id=_ids.trace(),
        span_id="b7ad6b7169203331",
        sender="control_plane",
        to=AGENT,
        type="request",
        payload=payload or {},
        metadata={"execution_id": "exec_1"},
        at_ms=1_700_000_000_000,
    )


def mailbox(*, in_flight_max: int = 64, ack_wait_s: float = 30.0) -> Consumer:
    return subjects.agent_mailbox("default", AGENT, concurrency=in_flight_max, ack_wait_s=ack_wait_s)


async def publish_numbered(bus: MessageBus, count: int) -> list[Message]:
    messages = [a_message({"number": number}) for number in range(count)]
    await asyncio.gather(*(bus.publish(INBOX, one, dedup_id=one.id, confirm=True) for one in messages))
    return messages


@pytest.fixture
async def bus(nats: NatsServer) -> AsyncIterator[JetStreamBus]:
    async with jetstream(nats.url, name="contract", confirm_within_s=2.0) as connected:
        yield connected


class Received:
    """Keeps every delivery it is handed, and settles nothing by itself."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def ids(self) -> list[str]:
        return [delivery.message.id for delivery in self.deliveries]


class MessageBusContract:
    async def test_a_published_message_arrives_whole_with_its_first_delivery_count(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(), received)
        sent = a_message({"text": "grüß dich", "nested": {"list": [1, 2.5, None]}})

        await bus.publish(INBOX, sent, dedup_id=sent.id, confirm=True)
        await eventually(lambda: len(received) == 1)

        assert received.deliveries[0].message == sent
        assert received.deliveries[0].deliveries == 1

    async def test_a_publish_without_confirmation_arrives_too(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(), received)
        sent = a_message()

        await bus.publish(INBOX, sent, dedup_id=sent.id, confirm=False)

        await eventually(lambda: received.ids == [sent.id])

    async def test_a_repeated_dedup_id_is_dropped_by_the_stream(self, bus: MessageBus) -> None:
        first, other = a_message(), a_message()

        await bus.publish(INBOX, first, dedup_id="exec_1/step#1", confirm=True)
        await bus.publish(INBOX, first, dedup_id="exec_1/step#1", confirm=True)
        await bus.publish(INBOX, first, dedup_id="exec_1/step#1", confirm=False)
        await bus.publish(INBOX, other, dedup_id="exec_1/step#2", confirm=True)

        assert [message.id async for message in bus.replay(subjects.AGENTS)] == [first.id, other.id]

    async def test_what_is_acked_does_not_come_back_and_what_is_not_comes_back_after_the_ack_wait(
        self, bus: MessageBus
    ) -> None:
        received = Received()
        await bus.subscribe(mailbox(ack_wait_s=1.0), received)
        kept, left = await publish_numbered(bus, 2)
        await eventually(lambda: len(received) == 2)

        next(delivery for delivery in received.deliveries if delivery.message.id == kept.id).ack()
        await eventually(lambda: len(received) == 3)
        again = received.deliveries[2]
        assert (again.message.id, again.deliveries) == (left.id, 2)
        again.ack()

        await eventually(lambda: is_backlog(bus, mailbox(), Backlog(waiting=0, unacked=0)))
        assert received.ids.count(kept.id) == 1

    async def test_saying_that_work_goes_on_starts_the_ack_wait_anew(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(ack_wait_s=1.0), received)
        tended, left = await publish_numbered(bus, 2)
        await eventually(lambda: len(received) == 2)

        def tend_until_the_other_came_back_twice() -> bool:
            next(delivery for delivery in received.deliveries if delivery.message.id == tended.id).working()
            return received.ids.count(left.id) == 3

        await eventually(tend_until_the_other_came_back_twice, within_s=10)
        assert received.ids.count(tended.id) == 1

    async def test_a_message_given_back_with_a_delay_returns_no_earlier(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(), received)
        await publish_numbered(bus, 1)
        await eventually(lambda: len(received) == 1)
        clock = SystemClock()

        given_back_at = clock.monotonic_s()
        received.deliveries[0].nak(delay_s=0.5)
        await eventually(lambda: len(received) == 2)

        assert clock.monotonic_s() - given_back_at >= 0.5
        assert received.deliveries[1].deliveries == 2

    async def test_a_message_given_back_without_delay_returns_at_once(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(), received)
        await publish_numbered(bus, 1)
        await eventually(lambda: len(received) == 1)

        received.deliveries[0].nak()

        await eventually(lambda: len(received) == 2, within_s=3)

    async def test_a_delivery_is_settled_only_once(self, bus: MessageBus) -> None:
        received = Received()
        await bus.subscribe(mailbox(), received)
        await publish_numbered(bus, 1)
        await eventually(lambda: len(received) == 1)

        received.deliveries[0].ack()
        received.deliveries[0].nak()

        await eventually(lambda: is_backlog(bus, mailbox(), Backlog(waiting=0, unacked=0)))
        assert len(received) == 1

    @pytest.mark.parametrize("in_flight_max", [1, 10])
    async def test_no_more_than_the_limit_is_ever_unsettled(self, bus: MessageBus, in_flight_max: int) -> None:
        consumer = mailbox(in_flight_max=in_flight_max)
        sent = await publish_numbered(bus, 10 * in_flight_max)
        held: list[Delivery] = []
        seen: list[str] = []
        most_held = 0

        def hold(delivery: Delivery) -> None:
            nonlocal most_held
            held.append(delivery)
            seen.append(delivery.message.id)
            most_held = max(most_held, len(held))

        await bus.subscribe(consumer, hold)
        await eventually(lambda: len(held) == in_flight_max)
        assert await bus.backlog(consumer) == Backlog(waiting=9 * in_flight_max, unacked=in_flight_max)

        def settle_half_and_ask_whether_all_came() -> bool:
            for _ in range((len(held) + 1) // 2):
                held.pop().ack()
            return len(seen) == len(sent)

        await eventually(settle_half_and_ask_whether_all_came, within_s=15)
        assert most_held == in_flight_max
        assert sorted(seen) == sorted(message.id for message in sent)

    async def test_two_subscribers_of_one_consumer_share_its_messages_without_doubles(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        seen: dict[str, list[str]] = {"here": [], "there": []}

        def acking(who: str) -> Any:
            def handle(delivery: Delivery) -> None:
                seen[who].append(delivery.message.id)
                delivery.ack()

            return handle

        async with jetstream(nats.url, name="another process") as other:
            await bus.subscribe(mailbox(in_flight_max=20), acking("here"))
            await other.subscribe(mailbox(in_flight_max=20), acking("there"))
            sent = await publish_numbered(bus, 500)
            await eventually(lambda: is_backlog(bus, mailbox(), Backlog(waiting=0, unacked=0)))

        assert sorted(seen["here"] + seen["there"]) == sorted(message.id for message in sent)
        assert seen["here"]
        assert seen["there"]

    async def test_what_a_dead_process_held_takes_up_no_room_of_another(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        held: list[str] = []
        sent = await publish_numbered(bus, 2)
        async with jetstream(nats.url, name="another process") as other:
            await other.subscribe(mailbox(in_flight_max=1, ack_wait_s=300), lambda each: held.append(each.message.id))
            await eventually(lambda: len(held) == 1)

        await bus.subscribe(mailbox(in_flight_max=1, ack_wait_s=300), lambda each: held.append(each.message.id))

        await eventually(lambda: held == [each.id for each in sent], within_s=10)

    async def test_a_handler_that_raises_gets_the_message_again_and_the_others_meanwhile(self, bus: MessageBus) -> None:
        seen: list[tuple[int, int]] = []

        def fail_at_first(delivery: Delivery) -> None:
            seen.append((delivery.message.read(dict)["number"], delivery.deliveries))
            if seen[-1] == (0, 1):
                raise RuntimeError("not today")
            delivery.ack()

        await bus.subscribe(mailbox(in_flight_max=1), fail_at_first)
        await publish_numbered(bus, 2)

        await eventually(lambda: len(seen) == 3)
        assert seen == [(0, 1), (1, 1), (0, 2)] or seen == [(0, 1), (0, 2), (1, 1)]

    async def test_a_stopped_subscription_takes_no_more_but_may_still_ack_what_it_has(self, bus: MessageBus) -> None:
        received = Received()
        subscription = await bus.subscribe(mailbox(), received)
        await publish_numbered(bus, 1)
        await eventually(lambda: len(received) == 1)

        await subscription.stop()
        await subscription.stop()  # twice is not an error
        await publish_numbered(bus, 3)
        assert await bus.backlog(mailbox()) == Backlog(waiting=3, unacked=1)
        received.deliveries[0].ack()

        await eventually(lambda: is_backlog(bus, mailbox(), Backlog(waiting=3, unacked=0)))
        assert len(received) == 1

    async def test_what_is_under_way_to_a_stopping_subscription_goes_to_another_without_waiting(
        self, bus: MessageBus
    ) -> None:
        sent = await publish_numbered(bus, 2_000)
        first_had = asyncio.Event()
        seen: list[str] = []

        def ack(delivery: Delivery) -> None:
            seen.append(delivery.message.id)
            delivery.ack()
            first_had.set()

        stopping = await bus.subscribe(mailbox(in_flight_max=1_000, ack_wait_s=60), ack)
        await first_had.wait()
        await stopping.stop()
        assert len(seen) < len(sent)
        await bus.subscribe(mailbox(in_flight_max=1_000, ack_wait_s=60), ack)

        await eventually(lambda: len(set(seen)) == len(sent), within_s=10)

    async def test_replay_gives_all_that_is_stored_in_order_from_any_place(self, bus: MessageBus) -> None:
        sent = [a_message({"number": number}) for number in range(600)]
        for message in sent:
            await bus.publish(INBOX, message, dedup_id=message.id, confirm=False)
        await publish_numbered(bus, 0)
        await eventually(lambda: stored(bus, len(sent)))

        assert [message async for message in bus.replay(subjects.AGENTS)] == sent
        assert [message async for message in bus.replay(subjects.AGENTS, from_sequence=591)] == sent[590:]
        assert [message async for message in bus.replay(subjects.AGENTS, from_sequence=601)] == []
        assert [message async for message in bus.replay(subjects.AUDIT)] == []

    async def test_a_replay_may_be_left_half_way(self, bus: MessageBus) -> None:
        await publish_numbered(bus, 300)

        numbers = bus.replay(subjects.AGENTS)
        first = await anext(numbers)
        await numbers.aclose()  # type: ignore[attr-defined]

        assert first.read(dict).keys() == {"number"}
        assert len([message async for message in bus.replay(subjects.AGENTS)]) == 300

    async def test_replay_of_a_stream_that_does_not_exist_says_so(self, bus: MessageBus) -> None:
        with pytest.raises(BusUnavailable, match="no stream AF_NOWHERE"):
            await anext(bus.replay("AF_NOWHERE"))

    async def test_a_consumer_nobody_made_yet_has_all_that_is_stored_before_it(self, bus: MessageBus) -> None:
        assert await bus.backlog(mailbox()) == Backlog(waiting=0, unacked=0)
        for number in range(3):
            await bus.publish(INBOX, a_message(), dedup_id=f"m{number}", confirm=True)

        assert await bus.backlog(mailbox()) == Backlog(waiting=3, unacked=0)
        elsewhere = msgspec.structs.replace(mailbox(), stream="AF_NOWHERE")
        assert await bus.backlog(elsewhere) == Backlog(waiting=0, unacked=0)

    async def test_a_broadcast_reaches_those_who_listen_and_is_not_stored(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        heard: list[bytes] = []
        async with jetstream(nats.url, name="another process") as other:
            listening = await bus.listen(subjects.HEARTBEATS, heard.append)
            await eventually(lambda: broadcast_and_see(other, heard))

            await listening.stop()
            heard.clear()
            await other.broadcast(subjects.HEARTBEATS, b"after")
            await bus.backlog(mailbox())
        assert heard == []

    async def test_a_listener_sees_committed_events_live(self, bus: MessageBus) -> None:
        heard: list[bytes] = []
        await bus.listen(subjects.ALL_WORKFLOWS_OUT, heard.append)
        event = a_message({"type": "StepSucceeded"})

        await bus.publish(subjects.workflow_out("support", 3), event, dedup_id=event.id, confirm=True)

        await eventually(lambda: heard == [encode(event)])

    async def test_a_request_is_answered_by_one_of_a_group(self, bus: MessageBus, nats: NatsServer) -> None:
        answered: list[str] = []

        def answering_as(name: str) -> Callable[[bytes], Awaitable[bytes]]:
            async def answer(question: bytes) -> bytes:
                answered.append(name)
                return b"to " + question

            return answer

        async with jetstream(nats.url, name="another process") as other:
            await bus.answer("questions.any", answering_as("first"), group="both")
            await other.answer("questions.any", answering_as("second"), group="both")
            await other.backlog(mailbox())  # both subscriptions are known to the server

            answers = [await other.request("questions.any", b"%d" % n, within_s=5) for n in range(20)]

        assert answers == [b"to %d" % n for n in range(20)]
        assert len(answered) == 20

    async def test_a_request_that_nobody_answers_fails_at_once_and_a_lost_one_at_its_deadline(
        self, bus: MessageBus
    ) -> None:
        async def fails(_: bytes) -> bytes:
            raise RuntimeError("no")

        with pytest.raises(NobodyListens, match="nobody answers"):
            await bus.request("questions.nobody", b"", within_s=30)

        await bus.answer("questions.failing", fails)
        with pytest.raises(BusUnavailable, match="within") as lost:
            await bus.request("questions.failing", b"", within_s=0.05)
        assert not isinstance(lost.value, NobodyListens)

    async def test_each_request_has_a_deadline_of_its_own(self, bus: MessageBus) -> None:
        async def never(_: bytes) -> bytes:
            return await asyncio.Future()

        await bus.answer("questions.silent", never)
        patient = asyncio.create_task(bus.request("questions.silent", b"", within_s=0.4))
        await asyncio.sleep(0)

        with pytest.raises(BusUnavailable, match=r"within 0\.05 s"):
            await bus.request("questions.silent", b"", within_s=0.05)
        assert not patient.done()
        with pytest.raises(BusUnavailable, match=r"within 0\.4 s"):
            await patient

    async def test_a_request_above_the_limit_is_rejected_and_the_line_stays_up(self, bus: MessageBus) -> None:
        with pytest.raises(MessageTooLarge):
            await bus.request("questions.any", b"x" * (limits.BUS_MESSAGE_BYTES_MAX + 1), within_s=1)

        assert bus.connected

    async def test_a_slow_answer_does_not_hold_up_the_next_one(self, bus: MessageBus) -> None:
        release = asyncio.Event()

        async def answer(question: bytes) -> bytes:
            if question == b"slow":
                await release.wait()
            return question

        await bus.answer("questions.mixed", answer)
        slow = asyncio.create_task(bus.request("questions.mixed", b"slow", within_s=10))
        assert await bus.request("questions.mixed", b"fast", within_s=10) == b"fast"
        assert not slow.done()

        release.set()
        assert await slow == b"slow"

    async def test_a_message_above_the_limit_is_rejected_with_its_size(self, bus: MessageBus) -> None:
        large = a_message({"text": "x" * limits.BUS_MESSAGE_BYTES_MAX})

        with pytest.raises(MessageTooLarge, match=str(limits.BUS_MESSAGE_BYTES_MAX)):
            await bus.publish(INBOX, large, dedup_id=large.id, confirm=True)

    async def test_a_message_just_below_the_limit_passes(self, bus: MessageBus) -> None:
        large = a_message({"text": "x" * (limits.BUS_MESSAGE_BYTES_MAX - 1024)})

        await bus.publish(INBOX, large, dedup_id=large.id, confirm=True)

        assert [message async for message in bus.replay(subjects.AGENTS)] == [large]

    async def test_a_dedup_id_with_a_line_break_is_refused(self, bus: MessageBus) -> None:
        with pytest.raises(MalformedEnvelope):
            await bus.publish(INBOX, a_message(), dedup_id="one\r\ntwo", confirm=False)

    async def test_a_confirmed_publish_to_a_subject_no_stream_takes_fails_at_its_deadline(
        self, bus: MessageBus
    ) -> None:
        with pytest.raises(BusUnavailable, match="no stream takes this subject"):
            await bus.publish("nobody.reads.this", a_message(), dedup_id="one", confirm=True)


class TestJetStreamBus(MessageBusContract):
    async def test_a_tampered_message_is_refused_and_does_not_hold_up_those_behind_it(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        forged = msgspec.structs.replace(a_message({"amount": 1}), payload=msgspec.Raw(b'{"amount":1000000}'))
        async with raw_client(nats) as raw:
            await raw.jetstream().publish(INBOX, encode(forged))
            await raw.jetstream().publish(INBOX, b"not even JSON")
            await raw.jetstream().publish(INBOX, b"")
        received = Received()

        await bus.subscribe(mailbox(in_flight_max=1, ack_wait_s=1.0), received)
        (honest,) = await publish_numbered(bus, 1)
        await eventually(lambda: len(received) == 1)
        received.deliveries[0].ack()

        await eventually(lambda: is_backlog(bus, mailbox(), Backlog(waiting=0, unacked=0)))
        assert received.ids == [honest.id]
        assert [message.id async for message in bus.replay(subjects.AGENTS)] == [honest.id]

    async def test_headers_carry_the_dedup_id_the_execution_and_the_trace(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        sent = a_message()
        arrived: list[Msg] = []
        async with raw_client(nats) as raw:

            async def keep(message: Msg) -> None:
                arrived.append(message)

            async def published_and_heard() -> bool:
                await bus.publish(INBOX, sent, dedup_id="exec_1/step#1", confirm=True)
                return bool(arrived)

            await raw.subscribe(INBOX, cb=keep)
            await eventually(published_and_heard, within_s=10)
            headers = arrived[0].headers

        assert headers == {
            "Nats-Msg-Id": "exec_1/step#1",
            "AF-Execution": "exec_1",
            "traceparent": f"00-{sent.trace_id}-{sent.span_id}-01",
        }

    async def test_opening_the_bus_again_changes_nothing_that_is_stored(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        sent = await publish_numbered(bus, 3)

        async with jetstream(nats.url, name="another process") as other:
            stored_ids = [message.id async for message in other.replay(subjects.AGENTS)]

        assert sorted(stored_ids) == sorted(message.id for message in sent)

    async def test_streams_are_on_disk_with_the_age_and_window_of_the_design(
        self, bus: MessageBus, nats: NatsServer
    ) -> None:
        async with raw_client(nats) as raw:
            found = {info.config.name: info.config for info in await raw.jsm().streams_info()}

        assert {name: config.max_age for name, config in found.items()} == {
            spec.name: spec.max_age_s for spec in subjects.STREAMS
        }
        assert {config.storage for config in found.values()} == {"file"}
        assert {config.duplicate_window for config in found.values()} == {limits.DEDUP_WINDOW_S}


class raw_client:  # noqa: N801 - reads as the block it opens
    """A plain NATS client: someone who does not go through our door."""

    def __init__(self, nats: NatsServer) -> None:
        self._url = nats.url
        self._client = Client()

    async def __aenter__(self) -> Client:
        await self._client.connect(self._url)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def is_backlog(bus: MessageBus, consumer: Consumer, expected: Backlog) -> bool:
    return await bus.backlog(consumer) == expected


async def stored(bus: MessageBus, count: int) -> bool:
    return len([message async for message in bus.replay(subjects.AGENTS)]) == count


async def broadcast_and_see(bus: MessageBus, heard: list[bytes]) -> bool:
    await bus.broadcast(subjects.HEARTBEATS, b"alive")
    return b"alive" in heard
