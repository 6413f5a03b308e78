"""One order over all events (`agentflow.ports.EventStream`), on both engines and under transactions that overlap."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, text

from agentflow.execution.events import ExecutionStarted, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkflowId
from agentflow.ports import NewEvents
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.stream import SqlEventStream
from control_plane.storage.tables import event_store

TENANT = TenantId("acme")


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


def started(execution: str, shard: int = 0) -> NewEvents:
    workflow = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")
    event = ExecutionStarted(1, ExecutionId(execution), TENANT, workflow, {}, TraceId("t"))
    return NewEvents(ExecutionId(execution), TENANT, shard, 0, (event,), evolve(ExecutionState(), event))


async def everything(stream: SqlEventStream, *, after: int = 0, limit: int = 3) -> list[str]:
    seen: list[str] = []
    while True:
        page = await stream.page(after=after, limit=limit)
        seen += [event.execution for event in page.events]
        if page.position == after:
            return seen
        after = page.position


async def test_all_events_come_in_the_order_of_writing_page_by_page(db: Database) -> None:
    store, stream = SqlEventStore(db), SqlEventStream(db)
    epochs = await SqlShardLeases(db).acquire(range(4), "w", lease_s=60)
    assert await everything(stream) == []
    for number in range(10):
        await store.append([started(f"exec_{9 - number}", shard=number % 4)], epochs)

    assert await everything(stream) == [f"exec_{9 - number}" for number in range(10)]
    page = await stream.page(limit=4)
    assert [event.position for event in page.events] == sorted(event.position for event in page.events)
    assert page.events[0].tenant == TENANT
    assert page.events[0].version == 1
    assert await everything(stream, after=page.position) == [f"exec_{number}" for number in (5, 4, 3, 2, 1, 0)]


async def test_a_refused_append_leaves_no_hole_to_wait_for(db: Database) -> None:
    store, stream = SqlEventStore(db), SqlEventStream(db)
    epochs = await SqlShardLeases(db).acquire(range(4), "w", lease_s=60)
    await store.append([started("exec_1")], epochs)
    with pytest.raises(Exception, match="exec_1"):
        await store.append([started("exec_2"), started("exec_1")], epochs)
    await store.append([started("exec_3")], epochs)

    assert await everything(stream) == ["exec_1", "exec_3"]


async def test_a_lower_position_that_commits_later_is_not_passed_over(postgres_dsn: str) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        store, stream = SqlEventStore(db), SqlEventStream(db)
        epochs = await SqlShardLeases(db).acquire(range(4), "w", lease_s=60)
        async with db.system_write() as slow:
            # What the append does, and then it takes its time.
            await slow.execute(text("SELECT FROM shard_leases WHERE shard = 0 FOR NO KEY UPDATE"))
            await slow.execute(
                insert(event_store),
                {
                    "tenant_id": TENANT,
                    "execution_id": "exec_slow",
                    "version": 1,
                    "event_type": "execution.completed.v1",
                    "event_data": {"type": "execution.completed.v1", "at_ms": 1, "output": None},
                    "created_at_ms": 1,
                    "epoch": epochs[0],
                },
            )
            await store.append([started("exec_fast", shard=1)], epochs)  # a higher position, visible first
            reading = asyncio.ensure_future(stream.page(limit=10))
            done, _ = await asyncio.wait([reading], timeout=0.2)
            assert not done  # it waits rather than giving out the higher one
            await store.append([started("exec_meanwhile", shard=2)], epochs)  # and holds up nobody else

        page = await reading
        seen = [event.execution for event in page.events] + await everything(stream, after=page.position)
        assert seen == ["exec_slow", "exec_fast", "exec_meanwhile"]


async def test_a_follower_sees_every_event_once_while_many_write(db: Database) -> None:
    stream = SqlEventStream(db)
    epochs = await SqlShardLeases(db).acquire(range(4), "w", lease_s=60)
    writers, each = 4, 25

    async def write(shard: int) -> None:
        store = SqlEventStore(db)
        for number in range(each):
            await store.append([started(f"exec_{shard}_{number}", shard=shard)], epochs)

    async def follow() -> list[str]:
        after, seen = 0, []
        while len(seen) < writers * each:
            page = await stream.page(after=after, limit=7)
            seen += [event.execution for event in page.events]
            after = page.position
        return seen

    async with asyncio.timeout(30):
        seen, *_ = await asyncio.gather(follow(), *(write(shard) for shard in range(writers)))

    assert len(set(seen)) == len(seen)
    assert await everything(SqlEventStream(db)) == seen  # whoever reads later reads the same order
