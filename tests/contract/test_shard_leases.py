"""What every store of leases promises (`agentflow.ports.ShardLeases`), and what a fenced writer meets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionStarted,
    StepScheduled,
    TaskAnswered,
    TaskOpened,
    WorkflowRef,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId
from agentflow.limits import DATABASE_IDLE_S
from agentflow.ports import NewEvents, ShardLost
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import ShardsChanged, SqlShardLeases, record_shards
from control_plane.storage.migrate import upgrade
from control_plane.storage.tables import event_store, execution_snapshots, executions, human_tasks

TENANT = TenantId("acme")
OLD, NEW = "old", "new"
APPENDING = text("SELECT FROM shard_leases WHERE shard = 0 FOR NO KEY UPDATE")


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
def leases(db: Database) -> SqlShardLeases:
    return SqlShardLeases(db)


def started(execution: str, shard: int = 0) -> NewEvents:
    workflow = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")
    event = ExecutionStarted(1, ExecutionId(execution), TENANT, workflow, {}, TraceId("t"))
    return NewEvents(ExecutionId(execution), TENANT, shard, 0, (event,), evolve(ExecutionState(), event))


def following(before: NewEvents, event: Event) -> NewEvents:
    after = evolve(before.state, event)
    tasks = tuple(task.path for task in before.state.tasks.values()) if after.ended else ()
    return NewEvents(before.execution, TENANT, before.shard, before.state.version, (event,), after, tasks)


def continued(before: NewEvents) -> NewEvents:
    return following(before, StepScheduled(2, StepPath("a"), "a", 1, AgentName("a"), {}, 1_000))


async def test_a_free_shard_goes_to_who_asks_and_stays_with_them(leases: SqlShardLeases) -> None:
    first = await leases.acquire([0, 1, 2], OLD, lease_s=60)

    assert first == {0: 1, 1: 1, 2: 1}
    assert await leases.acquire([1, 2, 3], NEW, lease_s=60) == {3: 1}
    assert await leases.acquire([0, 1, 2], OLD, lease_s=60) == first  # asking again changes nothing
    held = await leases.leases()
    assert [(lease.shard, lease.epoch, lease.holder) for lease in held] == [
        (0, 1, OLD),
        (1, 1, OLD),
        (2, 1, OLD),
        (3, 1, NEW),
    ]
    assert all(50 < lease.left_s <= 60 for lease in held)


async def test_an_expired_lease_can_be_taken_over_with_a_higher_epoch(leases: SqlShardLeases) -> None:
    await leases.acquire([0, 1], OLD, lease_s=0)

    assert await leases.acquire([0], NEW, lease_s=60) == {0: 2}
    assert await leases.renew(OLD, lease_s=60) == {1: 1}  # nobody wanted it: it may go on


async def test_renewing_makes_a_lease_last(leases: SqlShardLeases) -> None:
    await leases.acquire([0], OLD, lease_s=0)

    assert await leases.renew(OLD, lease_s=60) == {0: 1}

    assert await leases.acquire([0], NEW, lease_s=60) == {}


async def test_what_is_released_is_free_at_once_and_its_epoch_is_over(leases: SqlShardLeases, db: Database) -> None:
    epochs = await leases.acquire([0, 1, 2], OLD, lease_s=60)

    await leases.release(OLD, [0])
    with pytest.raises(ShardLost):
        await SqlEventStore(db).append([started("exec_late")], epochs)
    assert await leases.acquire([0, 1, 2], NEW, lease_s=60) == {0: 3}

    await leases.release(OLD)
    assert set(await leases.acquire([0, 1, 2], NEW, lease_s=60)) == {0, 1, 2}
    await leases.release("nobody")


async def test_stealing_takes_what_another_holds(leases: SqlShardLeases) -> None:
    await leases.acquire([0, 1], OLD, lease_s=60)

    assert await leases.acquire([0, 1], NEW, lease_s=60, steal=True) == {0: 2, 1: 2}
    assert await leases.renew(OLD, lease_s=60) == {}


async def test_of_many_who_ask_at_once_each_shard_goes_to_exactly_one(leases: SqlShardLeases, db: Database) -> None:
    asked = await asyncio.gather(*(leases.acquire(range(16), f"srv_{n}", lease_s=60) for n in range(8)))

    owned = [shard for epochs in asked for shard in epochs]
    assert sorted(owned) == list(range(16))


async def test_of_two_writers_the_fenced_one_fails_and_nothing_of_its_batch_stays(
    leases: SqlShardLeases, db: Database, database_dsn: str
) -> None:
    store = SqlEventStore(db)
    old = await leases.acquire([0, 1], OLD, lease_s=0)
    before = started("exec_1")
    await store.append([before], old)

    async with database(database_dsn) as other:
        new = await SqlShardLeases(other).acquire([0], NEW, lease_s=60)
        successor = SqlEventStore(other)
        assert await successor.load(before.execution) == before.state

        # One batch over two shards, one of which is still ours: all of it is refused.
        with pytest.raises(ShardLost, match="shard 0"):
            await store.append([started("exec_2", shard=1), continued(before), started("exec_3")], old)

        assert await successor.load_all([ExecutionId("exec_2"), ExecutionId("exec_3")]) == []
        assert await successor.load(before.execution) == before.state
        assert [page async for page in successor.open_executions([0, 1])] == [["exec_1"]]
        await successor.append([continued(before)], new)
        await store.append([started("exec_2", shard=1)], old)  # what it still owns goes on


async def test_a_writer_that_never_had_the_lease_cannot_write(leases: SqlShardLeases, db: Database) -> None:
    epochs = await leases.acquire([0], OLD, lease_s=60)

    for wrong in ({}, {1: 1}, {0: epochs[0] + 1}, {0: epochs[0] - 1}):
        with pytest.raises(ShardLost):
            await SqlEventStore(db).append([started("exec_1")], wrong)

    assert await SqlEventStore(db).load(ExecutionId("exec_1")) is None


async def test_events_tell_under_which_epoch_they_were_written(leases: SqlShardLeases, db: Database) -> None:
    await leases.acquire([0], OLD, lease_s=0)
    epochs = await leases.acquire([0], NEW, lease_s=60)

    await SqlEventStore(db).append([started("exec_1")], epochs)

    async with db.system_read() as connection:
        assert await connection.scalar(text("SELECT epoch FROM event_store")) == epochs[0] == 2


async def test_nothing_that_a_fenced_append_carries_is_written(leases: SqlShardLeases, db: Database) -> None:
    """Not its events, nor the list, the snapshot, a task that it opens or one that it ends, in whatever company."""
    store = SqlEventStore(db, snapshot_every=1)
    old = await leases.acquire([0], OLD, lease_s=0)
    begun = started("exec_1")
    asks = following(begun, TaskOpened(2, StepPath("asks"), {}))
    await store.append([begun, asks], old)
    await leases.acquire([0], NEW, lease_s=60)
    before = await everything(db)

    for late in (
        following(asks, TaskAnswered(3, StepPath("asks"), None)),
        following(asks, TaskOpened(3, StepPath("more"), {})),
        following(asks, ExecutionCompleted(3, None)),
        started("exec_2"),
    ):
        with pytest.raises(ShardLost):
            await store.append([late], old)
        assert await everything(db) == before


async def everything(db: Database) -> list[list[tuple[object, ...]]]:
    async with db.system_read() as connection:
        return [
            [tuple(row) for row in await connection.execute(table.select())]
            for table in (event_store, executions, execution_snapshots, human_tasks)
        ]


async def test_a_takeover_waits_for_an_append_under_way_and_then_sees_it(postgres_dsn: str) -> None:
    """The window between the check and the commit: PostgreSQL only, since SQLite has one writer at a time."""
    async with database(postgres_dsn) as db:
        await upgrade(db)
        leases = SqlShardLeases(db)
        await leases.acquire([0], OLD, lease_s=0)
        async with db.system_write() as connection:
            await connection.execute(APPENDING)  # an append that has checked its epoch and not yet committed
            takeover = asyncio.ensure_future(leases.acquire([0], NEW, lease_s=60))
            done, _ = await asyncio.wait([takeover], timeout=0.2)
            assert not done
            await connection.execute(
                text(
                    "INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data,"
                    " created_at_ms, epoch) VALUES ('acme', 'exec_1', 1, 'e', '{}', 1, 1)"
                )
            )

        assert await takeover == {0: 2}
        async with db.system_read() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM event_store")) == 1


async def test_a_transaction_that_stands_still_is_ended_by_the_server(postgres_dsn: str) -> None:
    """Whoever holds a lock and is frozen or cut off keeps others waiting for this long, and not until it is back."""
    async with database(postgres_dsn) as db:
        await upgrade(db)
        for way in (db.system_write(), db.system_read(), db.write(TENANT), db.read(TENANT)):
            async with way as connection:
                allowed = await connection.scalar(text("SHOW idle_in_transaction_session_timeout"))
                assert allowed == f"{DATABASE_IDLE_S:g}s"


async def test_leases_keep_nothing_locked_once_the_server_has_the_statement(postgres_dsn: str) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        await SqlShardLeases(db).acquire([0], OLD, lease_s=0)
        async with db.system_statement() as still:  # sent, answered, and then its sender stands still
            await still.execute(text("UPDATE shard_leases SET expires_at_ms = 0"))
            async with asyncio.timeout(5):
                assert await SqlShardLeases(db).acquire([0], NEW, lease_s=60) == {0: 2}


async def test_the_number_of_shards_is_fixed_by_the_first_start(db: Database) -> None:
    await asyncio.gather(*(record_shards(db, 16) for _ in range(3)))
    await record_shards(db, 16)

    with pytest.raises(ShardsChanged, match="set up with 16 shards, and AF_SHARDS asks for 32") as refused:
        await record_shards(db, 32)
    assert "AF_SHARDS=16" in refused.value.hint
