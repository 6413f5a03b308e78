"""The feed over a store made up here: nothing lost, nothing twice, in order, whoever comes when."""

import asyncio
from contextlib import aclosing

import pytest

from agentflow.execution.events import ExecutionPaused
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import BusUnavailable
from agentflow.testing import eventually
from control_plane.live.feed import Feed, LiveEvent, LivePage, ReaderTooSlow, Topic

ACME, OTHER = TenantId("acme"), TenantId("other")


class Store:
    """Sequence numbers have gaps, as positions do."""

    def __init__(self):
        self.events = []
        self.looks = 0
        self.listeners = []

    def add(self, count=1, *, tenant=ACME, workflow="w", execution="exec_1"):
        for _ in range(count):
            seq = 3 * len(self.events) + 3
            event = ExecutionPaused(seq, "request", "")
            self.events.append(LiveEvent(seq, tenant, workflow, ExecutionId(execution), len(self.events) + 1, event))
        for hint in self.listeners:
            hint(b"")
        return self.events[-1].seq

    async def newest(self):
        return self.events[-1].seq if self.events else 0

    async def page(self, *, after, limit, topic=None):
        self.looks += 1
        await asyncio.sleep(0)
        fitting = [event for event in self.events if event.seq > after and (topic is None or topic.fits(event))]
        end = self.events[-1].seq if self.events else 0
        found = fitting[:limit]
        return LivePage(found, found[-1].seq if len(found) == limit else max(after, end))

    async def listen(self, handler):
        self.listeners.append(handler)
        store = self

        class Listening:
            async def stop(self):
                store.listeners.remove(handler)

        return Listening()


@pytest.fixture
def store():
    return Store()


def feed_of(store, **options):
    return Feed(store, listen=store.listen, **options)


async def seen(feed, topic, count, *, after=None):
    """The sequence numbers of the next so many events."""
    numbers = []
    async with aclosing(feed.read(topic, after=after)) as pages:
        async with asyncio.timeout(10):
            async for page in pages:
                numbers += [event.seq for event in page.events]
                if len(numbers) >= count:
                    return numbers
    return numbers


async def test_a_reader_sees_what_was_before_and_what_comes_each_once_and_in_order(store):
    feed = feed_of(store)
    store.add(1_200)
    reading = asyncio.create_task(seen(feed, Topic(ACME), 1_300, after=0))
    for _ in range(100):
        await asyncio.sleep(0)
        store.add()

    assert await reading == [event.seq for event in store.events]


async def test_without_a_number_a_reader_begins_now(store):
    store.add(5)
    feed = feed_of(store)
    async with aclosing(feed.read(Topic(ACME))) as pages:
        first = await anext(pages)
        assert (first.events, first.seq) == ((), 15)
        store.add()
        assert [event.seq for event in (await anext(pages)).events] == [18]


async def test_a_reader_sees_its_topic_only(store):
    store.add(execution="exec_1", workflow="a")
    store.add(execution="exec_2", workflow="a")
    store.add(execution="exec_3", workflow="b")
    store.add(tenant=OTHER, execution="exec_4", workflow="a")
    feed = feed_of(store)

    assert await seen(feed, Topic(ACME), 3, after=0) == [3, 6, 9]
    assert await seen(feed, Topic(ACME, workflow="a"), 2, after=0) == [3, 6]
    assert await seen(feed, Topic(ACME, execution=ExecutionId("exec_2")), 1, after=0) == [6]
    assert await seen(feed, Topic(OTHER), 1, after=0) == [12]


async def test_a_reader_that_had_caught_up_and_is_left_behind_is_told_from_where_to_go_on(store):
    feed = feed_of(store, kept_max=10)
    async with aclosing(feed.read(Topic(ACME), after=0)) as pages:
        await anext(pages)
        store.add()
        assert [event.seq for event in (await anext(pages)).events] == [3]
        store.add(11)
        await eventually(lambda: feed._head == 36)
        with pytest.raises(ReaderTooSlow) as slow:
            await anext(pages)

    assert slow.value.seq == 3
    assert await seen(feed, Topic(ACME), 11, after=slow.value.seq) == [event.seq for event in store.events[1:]]
    assert len(feed._kept) <= 10


async def test_nobody_looks_and_nobody_listens_while_nobody_reads(store):
    feed = feed_of(store)
    store.add()
    assert await seen(feed, Topic(ACME), 1, after=0) == [3]
    await eventually(lambda: not store.listeners)
    looks = store.looks
    store.add()

    assert store.looks == looks
    assert await seen(feed, Topic(ACME), 1, after=3) == [6]


async def test_a_bus_that_is_away_only_makes_it_slower(store):
    async def deaf(_handler):
        raise BusUnavailable("away")

    feed = Feed(store, listen=deaf)
    reading = asyncio.create_task(seen(feed, Topic(ACME), 1))
    await eventually(lambda: store.looks > 0)
    store.add()

    assert await reading == [3]


async def test_silence_is_told_with_how_far_the_reader_has_come(store):
    feed = feed_of(store, idle_s=0.01)
    async with aclosing(feed.read(Topic(ACME), after=0)) as pages:
        assert (await anext(pages)).events == ()
        assert (await anext(pages)).events == ()
        store.add(tenant=OTHER)
        await eventually(lambda: feed._head == 3)
        async for page in pages:
            assert not page.events
            if page.seq == 3:
                break


async def test_readers_are_let_go_when_the_replica_stops(store):
    feed = feed_of(store)
    readers = [asyncio.create_task(seen(feed, Topic(ACME), 1)) for _ in range(3)]
    await eventually(lambda: feed._readers == 3)

    feed.close()

    assert await asyncio.gather(*readers) == [[], [], []]
