"""The bus while NATS is killed, wiped, away or angry: what was confirmed is delivered, and everyone comes back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, StreamRefused, jetstream
from agentflow.bus.pull import ContinuousPull
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, seal
from agentflow.devstack.nats import NatsServer
from agentflow.ids import AgentName, UlidSource
from agentflow.ports import Backlog, BusUnavailable, Delivery
from agentflow.testing import eventually

AGENT = AgentName("classifier")
INBOX = subjects.agent_in("default", AGENT)
MAILBOX = subjects.agent_mailbox("default", AGENT, concurrency=200, ack_wait_s=2.0)

_ids = UlidSource(SystemClock().now_ms)


def a_message() -> Message:
    return seal(
        id=_ids.message(),
        trace_id=_ids.trace(),
        span_id="",
        sender="control_plane",
        to=AGENT,
        type="request",
        payload={},
        metadata={},
        at_ms=1_700_000_000_000,
    )


async def publish_one(bus: JetStreamBus) -> Message:
    message = a_message()
    await bus.publish(INBOX, message, dedup_id=message.id, confirm=True)
    return message


async def kill(nats: NatsServer) -> None:
    nats.process.kill()
    await nats.process.wait()


async def noticed_the_cut(bus: JetStreamBus) -> bool:
    try:
        await bus.broadcast("anyone.there", b"")
    except BusUnavailable:
        return True
    return False


async def all_settled(bus: JetStreamBus) -> bool:
    try:
        return await bus.backlog(MAILBOX) == Backlog(waiting=0, unacked=0)
    except BusUnavailable:
        return False


@pytest.fixture
async def bus(nats: NatsServer) -> AsyncIterator[JetStreamBus]:
    async with jetstream(nats.url, name="outages", confirm_within_s=10.0) as connected:
        yield connected


@pytest.mark.parametrize("kills", [1, 3])
async def test_nothing_confirmed_is_lost_when_nats_is_killed_in_the_middle_of_the_stream(
    nats: NatsServer, bus: JetStreamBus, kills: int
) -> None:
    confirmed: set[str] = set()
    delivered: set[str] = set()

    def ack(delivery: Delivery) -> None:
        delivered.add(delivery.message.id)
        delivery.ack()

    kill_at = [2_000 * (nth + 1) // (kills + 1) for nth in range(kills)]

    async def publish_some(count: int) -> None:
        for _ in range(count):
            confirmed.add((await publish_one(bus)).id)
            if len(confirmed) in kill_at:
                kill_at.remove(len(confirmed))
                nats.process.kill()

    await bus.subscribe(MAILBOX, ack)
    publishing = asyncio.gather(*(publish_some(50) for _ in range(40)))
    for _ in range(kills):
        await nats.process.wait()
        await nats.restart()
    await publishing

    assert (len(confirmed), kill_at) == (2_000, [])
    await eventually(lambda: delivered >= confirmed, within_s=20)
    await eventually(lambda: all_settled(bus), within_s=20)


async def test_a_confirmed_publish_rides_out_a_restart(nats: NatsServer, bus: JetStreamBus) -> None:
    await kill(nats)
    await eventually(lambda: noticed_the_cut(bus))

    publishing = asyncio.create_task(publish_one(bus))
    await nats.restart()
    sent = await publishing

    assert [message.id async for message in bus.replay(subjects.AGENTS)] == [sent.id]


async def test_publishing_while_nats_is_down_fails_within_its_deadline_and_works_again_afterwards(
    nats: NatsServer,
) -> None:
    clock = SystemClock()
    async with jetstream(nats.url, name="outages", confirm_within_s=1.0) as bus:
        await kill(nats)
        began = clock.monotonic_s()
        with pytest.raises(BusUnavailable):
            await publish_one(bus)
        assert 0.9 <= clock.monotonic_s() - began < 2.0

        # Unconfirmed ones fail at once instead of piling up in memory.
        began = clock.monotonic_s()
        with pytest.raises(BusUnavailable, match="connection is down"):
            await bus.publish(INBOX, a_message(), dedup_id="one", confirm=False)
        with pytest.raises(BusUnavailable, match="connection is down"):
            await bus.backlog(MAILBOX)
        assert clock.monotonic_s() - began < 0.5

        await nats.restart()
        await eventually(lambda: back(bus))


async def back(bus: JetStreamBus) -> bool:
    try:
        await publish_one(bus)
    except BusUnavailable:
        return False
    return True


async def test_a_subscription_recovers_when_the_store_is_wiped(nats: NatsServer, bus: JetStreamBus) -> None:
    seen: list[str] = []

    def ack(delivery: Delivery) -> None:
        seen.append(delivery.message.id)
        delivery.ack()

    await bus.subscribe(MAILBOX, ack)
    before = await publish_one(bus)
    await eventually(lambda: seen == [before.id])

    await nats.restart(wipe=True)
    after = await publish_one(bus)

    await eventually(lambda: seen == [before.id, after.id], within_s=10)
    await eventually(lambda: all_settled(bus))


async def test_a_late_ack_of_a_wiped_message_does_not_settle_the_new_one_in_its_place(
    nats: NatsServer, bus: JetStreamBus
) -> None:
    patient = subjects.agent_mailbox("default", AGENT, concurrency=200, ack_wait_s=60)
    held: list[Delivery] = []
    first = await bus.subscribe(patient, held.append)
    await publish_one(bus)
    await publish_one(bus)
    await eventually(lambda: len(held) == 2)

    await nats.restart(wipe=True)
    await publish_one(bus)
    await eventually(lambda: len(held) == 3, within_s=10)
    await first.stop()
    elsewhere: list[Delivery] = []
    await bus.subscribe(patient, elsewhere.append)
    await publish_one(bus)  # takes the sequence that the second one had
    await eventually(lambda: len(elsewhere) == 1)
    held[0].ack()
    held[1].ack()

    elsewhere[0].nak()  # the server heeds this only for a message that is not settled yet

    await eventually(lambda: len(elsewhere) == 2)
    assert elsewhere[1].deliveries == 2


async def test_an_ack_given_while_nats_is_down_is_sent_when_it_is_back(nats: NatsServer, bus: JetStreamBus) -> None:
    held: list[Delivery] = []
    await bus.subscribe(subjects.agent_mailbox("default", AGENT, concurrency=200, ack_wait_s=60), held.append)
    await publish_one(bus)
    await eventually(lambda: len(held) == 1)

    await nats.process.stop()  # in good order: a killed server may forget that it delivered the message
    await eventually(lambda: noticed_the_cut(bus))
    held[0].ack()
    await nats.restart()

    await eventually(lambda: all_settled(bus), within_s=10)
    assert len(held) == 1


@pytest.mark.parametrize("what", ["consumer", "stream"])
async def test_a_subscription_recovers_when_someone_deletes_its_consumer_or_stream(
    nats: NatsServer, bus: JetStreamBus, what: str
) -> None:
    seen: list[str] = []

    def ack(delivery: Delivery) -> None:
        seen.append(delivery.message.id)
        delivery.ack()

    await bus.subscribe(MAILBOX, ack)
    vandal = Client()
    await vandal.connect(nats.url)
    if what == "consumer":
        await vandal.jsm().delete_consumer(MAILBOX.stream, MAILBOX.name)
    else:
        await vandal.jsm().delete_stream(MAILBOX.stream)
    with pytest.raises(NotFoundError):
        await vandal.jsm().consumer_info(MAILBOX.stream, "never_there")
    await vandal.close()

    sent = await publish_one(bus)

    await eventually(lambda: sent.id in seen, within_s=10)


async def test_an_error_line_from_the_server_is_survived(nats: NatsServer, bus: JetStreamBus) -> None:
    seen: list[str] = []
    await bus.subscribe(MAILBOX, lambda delivery: seen.append(delivery.message.id))

    bus._connection.send(b"NONSENSE\r\n")
    sent = await publish_one(bus)

    await eventually(lambda: sent.id in seen, within_s=10)


async def test_a_subscription_stops_even_if_it_is_told_so_just_as_the_server_answers_its_recovery(
    bus: JetStreamBus,
) -> None:
    """The moment in which Python 3.11's `wait_for` prefers the answer and forgets the cancellation."""
    subscription = await bus.subscribe(MAILBOX, lambda delivery: delivery.ack())
    assert isinstance(subscription, ContinuousPull)
    keeper = subscription._keeper
    assert keeper is not None

    subscription.lose()
    while not bus._connection._resp_map:  # noqa: ASYNC110 - turns of the loop, not a wait: it is about to ask
        await asyncio.sleep(0)
    (answer,) = bus._connection._resp_map.values()
    answer.add_done_callback(lambda _: keeper.cancel())

    async with asyncio.timeout(5):
        await asyncio.wait([keeper])
    await subscription.stop()


async def test_leaving_while_nats_is_down_neither_hangs_nor_raises(nats: NatsServer) -> None:
    async with asyncio.timeout(5):
        async with jetstream(nats.url, name="outages") as bus:
            await bus.subscribe(MAILBOX, lambda delivery: delivery.ack())
            await kill(nats)
            await eventually(lambda: noticed_the_cut(bus))


async def test_starting_before_nats_waits_for_it(nats: NatsServer) -> None:
    await kill(nats)
    opened = asyncio.Event()

    async def start() -> Message:
        async with jetstream(nats.url, name="early", connect_within_s=20) as bus:
            opened.set()
            return await publish_one(bus)

    starting = asyncio.create_task(start())
    await nats.restart()

    assert (await starting).to == AGENT
    assert opened.is_set()


async def test_starting_without_nats_fails_with_the_address_and_without_the_password(nats: NatsServer) -> None:
    await kill(nats)

    with pytest.raises(BusUnavailable) as failed:
        async with jetstream(f"nats://user:secret@127.0.0.1:{nats.port}", name="early", connect_within_s=0.5):
            pytest.fail("there is no server")

    assert f"127.0.0.1:{nats.port}" in str(failed.value)
    assert "AF_NATS_URL" in failed.value.hint
    assert "secret" not in str(failed.value)


async def test_more_replicas_than_servers_is_refused_with_the_servers_own_words(nats: NatsServer) -> None:
    with pytest.raises(StreamRefused, match="replicas") as refused:
        async with jetstream(nats.url, name="greedy", replicas=3, connect_within_s=1.0):
            pytest.fail("a single server cannot keep three copies")

    assert "AF_NATS_REPLICAS" in refused.value.hint


async def test_nothing_is_printed_while_the_connection_comes_and_goes(
    nats: NatsServer, bus: JetStreamBus, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await nats.restart()
    await eventually(lambda: back(bus), within_s=10)

    assert [record.getMessage() for record in caplog.records if record.name.startswith("nats")] == []
