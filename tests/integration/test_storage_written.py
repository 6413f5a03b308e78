"""What a writer remembers of its own commits (`control_plane.storage.written`), and when it must not trust it."""

from collections.abc import AsyncIterator
from functools import reduce

import pytest
from sqlalchemy import delete, text

from agentflow import limits
from agentflow.execution.events import Event, ExecutionCompleted, ExecutionStarted, StepScheduled, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId
from agentflow.ports import NewEvents, VersionConflict
from control_plane.storage.append import rows_of
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.tables import event_store
from control_plane.storage.written import Written

ACME = TenantId("acme")
EXECUTION = ExecutionId("exec_1")


def move(before: ExecutionState, *events: Event, tenant: TenantId = ACME) -> NewEvents:
    return NewEvents(EXECUTION, tenant, 0, before.version, events, reduce(evolve, events, before))


def beginning() -> NewEvents:
    workflow = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")
    return move(ExecutionState(), ExecutionStarted(1_000, EXECUTION, ACME, workflow, {}, TraceId("t")))


def step(name: str) -> StepScheduled:
    return StepScheduled(2_000, StepPath(name), name, 1, AgentName("a"), {}, 500)


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


async def forget_the_newest(db: Database, version: int) -> None:
    async with db.system_write() as connection:
        await connection.execute(delete(event_store).where(event_store.c.version == version))


def asked_for(known: Written, new: NewEvents, epoch: int) -> list[tuple[object, ...]]:
    return rows_of([new], {0: epoch}, snapshot_every=200, known=known).predecessors


async def test_what_this_connection_committed_is_not_asked_for_again(db: Database) -> None:
    epochs = await SqlShardLeases(db).acquire([0], "us", lease_s=60)
    store = SqlEventStore(db)
    first = beginning()
    following = move(first.state, step("a"))
    assert asked_for(db.written, following, epochs[0]) == [(ACME, EXECUTION, 1)]

    await store.append([first], epochs)

    assert asked_for(db.written, following, epochs[0]) == []
    assert asked_for(db.written, move(first.state, step("a"), tenant=TenantId("other")), epochs[0]) != []
    assert asked_for(db.written, following, epochs[0] + 1) != []  # another lease: somebody else may have written


async def test_what_has_ended_is_not_remembered_because_a_purge_may_take_it(db: Database) -> None:
    epochs = await SqlShardLeases(db).acquire([0], "us", lease_s=60)
    store = SqlEventStore(db)
    first = beginning()
    await store.append([first], epochs)
    last = move(first.state, ExecutionCompleted(3_000, {}))
    await store.append([last], epochs)

    assert asked_for(db.written, move(last.state, step("late")), epochs[0]) == [(ACME, EXECUTION, 2)]


async def test_after_the_lease_changed_hands_the_event_before_must_be_there_again(db: Database) -> None:
    leases, store = SqlShardLeases(db), SqlEventStore(db)
    epochs = await leases.acquire([0], "us", lease_s=60)
    first = beginning()
    second = move(first.state, step("a"))
    await store.append([first], epochs)
    await store.append([second], epochs)
    await leases.release("us")
    await forget_the_newest(db, 2)
    again = await leases.acquire([0], "us", lease_s=60)

    with pytest.raises(VersionConflict):
        await store.append([move(second.state, step("b"))], again)

    assert [event.version for event in await store.read(ACME, EXECUTION)] == [1]


async def test_a_server_that_lost_what_it_confirmed_is_not_written_to_with_a_gap(postgres_dsn: str) -> None:
    """As after a failover to a replica that had not heard of the last commit: the lease is the same, the event gone."""
    async with database(postgres_dsn) as db:
        await upgrade(db)
        epochs = await SqlShardLeases(db).acquire([0], "us", lease_s=60)
        store = SqlEventStore(db)
        first = beginning()
        second = move(first.state, step("a"))
        await store.append([first], epochs)
        await store.append([second], epochs)
        await forget_the_newest(db, 2)
        async with db.owning() as connection:
            others = "pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            await connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) FROM {others}"))  # and waits for it

        third = move(second.state, step("b"))
        for _ in range(2):  # the first may be told of the broken connection instead
            with pytest.raises(Exception, match=r"(?i)version 2|connection|terminat"):
                await store.append([third], epochs)

        assert [event.version for event in await store.read(ACME, EXECUTION)] == [1]


def test_a_writer_remembers_a_bounded_number_and_forgets_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.storage.written.WRITTEN_MAX", 2)
    assert limits.WRITTEN_MAX > 1_000
    known = Written()

    known.learn({ExecutionId(name): ("acme", 1, 1) for name in "abc"}, ())

    assert list(known.reached) == ["b", "c"]
