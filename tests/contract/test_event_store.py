"""What every event store promises (`agentflow.ports.EventStore`), on both engines."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from agentflow.contracts.step import StepFault
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
    Retry,
    StepFailed,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
    decode,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.ports import EventStore, NewEvents, ShardLost, StorageUnavailable, VersionConflict
from agentflow.testing import eventually
from control_plane.registry.executions import ExecutionFilter
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.state_snapshots import due
from control_plane.storage.tables import event_store, execution_snapshots

TENANT = TenantId("acme")
FIRST, SECOND, THIRD = ExecutionId("exec_1"), ExecutionId("exec_2"), ExecutionId("exec_3")
# Values that a careless column type changes: jsonb refuses NUL and makes an integer of 1e16.
AWKWARD = {
    "nul": "a\0b",
    "float": 1e16,
    "whole": 1.0,
    "big": 2**53 - 1,
    "text": "ü 💾 \"'\\",
    "z": 1,
    "a": [None, True],
}


def started(execution: ExecutionId, tenant: TenantId = TENANT, at_ms: int = 1_000) -> ExecutionStarted:
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "d1")
    return ExecutionStarted(at_ms, execution, tenant, workflow, AWKWARD, TraceId("t1"), deadline_ms=9_000)


def scheduled(name: str, attempt: int = 1) -> StepScheduled:
    retry = Retry(max_attempts=3, multiplier=1.5)
    return StepScheduled(2_000, StepPath(name), name, attempt, AgentName("a"), AWKWARD, 500, tool="kb", retry=retry)


def succeeded(name: str) -> StepSucceeded:
    return StepSucceeded(3_000, StepPath(name), 1, AWKWARD, WorkerId("wrk_1"), 2_500, 2_900)


def completed() -> ExecutionCompleted:
    return ExecutionCompleted(4_000, {"answer": 42})


def following(
    before: ExecutionState, *events: Event, execution: ExecutionId = FIRST, tenant: TenantId = TENANT, shard: int = 3
) -> NewEvents:
    after = reduce(evolve, events, before)
    return NewEvents(execution, tenant, shard, before.version, events, after)


def beginning(execution: ExecutionId, *more: Event, shard: int = 3) -> NewEvents:
    return following(ExecutionState(), started(execution), *more, execution=execution, shard=shard)


async def stored(store: EventStore, execution: ExecutionId = FIRST) -> list[tuple[int, Event]]:
    return [(event.version, event.event) for event in await store.read(TENANT, execution)]


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


class Writer(SqlEventStore):
    """A store and the leases to write to it."""

    epochs: Mapping[int, int]

    @classmethod
    async def of(cls, db: Database, holder: str = "writer", **options: Any) -> "Writer":
        store = cls(db, **options)
        store.epochs = await SqlShardLeases(db).acquire(range(4), holder, lease_s=60)
        return store

    async def append(self, batch: Sequence[NewEvents], epochs: Mapping[int, int] | None = None) -> None:
        await super().append(batch, self.epochs if epochs is None else epochs)


@pytest.fixture
async def store(db: Database) -> Writer:
    return await Writer.of(db)


async def left_open(store: Writer, shards: Sequence[int]) -> list[ExecutionId]:
    return [execution async for page in store.open_executions(shards) for execution in page]


async def test_every_kind_of_event_is_read_back_exactly_as_it_was_appended(store: Writer) -> None:
    fault = StepFault("timeout", "No result.", retryable=True)
    events: list[Event] = [
        started(FIRST),
        scheduled("a"),
        StepFailed(3_000, StepPath("a"), 1, fault, retry_at_ms=3_500, worker=WorkerId("wrk_1")),
        scheduled("a", attempt=2),
        StepSucceeded(3_600, StepPath("a"), 2, AWKWARD, WorkerId("wrk_1"), 3_510, 3_590),
        ExecutionCompleted(4_000, AWKWARD),
    ]
    failure: list[Event] = [started(SECOND), ExecutionFailed(4_000, fault)]

    await store.append([following(ExecutionState(), *events)])
    await store.append([following(ExecutionState(), *failure, execution=SECOND)])

    assert await stored(store) == list(enumerate(events, start=1))
    assert await stored(store, SECOND) == list(enumerate(failure, start=1))
    whole = (await stored(store))[0][1]
    assert isinstance(whole, ExecutionStarted)
    assert [type(value) for value in whole.input.values()] == [type(value) for value in AWKWARD.values()]


async def test_a_page_of_events_starts_after_a_version_and_ends_at_the_limit(store: Writer) -> None:
    await store.append([beginning(FIRST, *(scheduled(name) for name in "abcd"))])

    page = await store.read(TENANT, FIRST, after_version=2, limit=2)

    assert [event.version for event in page] == [3, 4]


async def test_a_stale_version_is_refused_and_nothing_of_its_batch_is_written(store: Writer) -> None:
    first = beginning(FIRST, scheduled("a"))
    await store.append([first])
    stale = following(ExecutionState(), started(FIRST), scheduled("b"))

    with pytest.raises(VersionConflict, match="exec_1 is not at version 0"):
        await store.append([beginning(SECOND), stale, beginning(THIRD)])

    assert await stored(store) == list(enumerate(first.events, start=1))
    assert await store.load(SECOND) is None
    assert await left_open(store, [3]) == [FIRST]


async def test_an_append_that_would_leave_a_gap_is_refused_and_nothing_of_its_batch_is_written(
    store: Writer,
) -> None:
    first = beginning(FIRST, scheduled("a"))
    await store.append([first])
    ahead = NewEvents(FIRST, TENANT, 3, 3, (completed(),), reduce(evolve, [completed()], first.state))

    with pytest.raises(VersionConflict, match="exec_1 is not at version 3"):
        await store.append([beginning(SECOND), ahead])

    assert [version for version, _ in await stored(store)] == [1, 2]
    assert await store.load(SECOND) is None
    assert await left_open(store, [3]) == [FIRST]  # it did not end


async def test_an_execution_nobody_started_cannot_be_continued(store: Writer) -> None:
    with pytest.raises(VersionConflict):
        await store.append([following(beginning(FIRST).state, scheduled("a"))])

    assert await store.load(FIRST) is None


async def test_one_batch_may_move_one_execution_twice(store: Writer) -> None:
    first = beginning(FIRST, scheduled("a"))
    second = following(first.state, succeeded("a"), completed())

    await store.append([first, second])

    assert [version for version, _ in await stored(store)] == [1, 2, 3, 4]
    assert await left_open(store, [3]) == []


async def test_a_batch_that_contradicts_itself_is_refused(store: Writer) -> None:
    first = beginning(FIRST, scheduled("a"))

    with pytest.raises(VersionConflict):
        await store.append([first, following(evolve(first.state, succeeded("a")), completed())])

    assert await store.load(FIRST) is None


async def test_a_batch_over_many_executions_is_written_whole(store: Writer) -> None:
    many = [ExecutionId(f"exec_many_{number:03}") for number in range(300)]

    await store.append([beginning(execution, scheduled("a")) for execution in many])

    assert await left_open(store, [3]) == many
    assert all([len(await store.read(TENANT, execution)) == 2 for execution in many[::50]])


async def test_an_empty_batch_is_no_work(store: Writer) -> None:
    await store.append([])


async def test_of_two_writers_at_once_exactly_one_wins_every_version(database_dsn: str, db: Database) -> None:
    async with database(database_dsn) as other:
        rivals = [await Writer.of(db), await Writer.of(other)]
        before = beginning(FIRST)
        await rivals[0].append([before])
        state = before.state

        for round_ in range(20):
            moves = [following(state, scheduled(f"{name}{round_}")) for name in "ab"]
            answers = await asyncio.gather(
                *(rival.append([move]) for rival, move in zip(rivals, moves, strict=True)), return_exceptions=True
            )

            winners = [move for move, answer in zip(moves, answers, strict=True) if answer is None]
            assert [type(answer) for answer in answers if answer is not None] == [VersionConflict]
            state = winners[0].state

        assert await rivals[1].load(FIRST) == state


async def test_load_gives_the_state_that_the_events_add_up_to(store: Writer) -> None:
    first = beginning(FIRST, scheduled("a"), scheduled("b"))
    await store.append([first, beginning(SECOND)])
    after = following(first.state, succeeded("a"))
    await store.append([after])

    assert await store.load(FIRST) == after.state
    assert await store.load(ExecutionId("exec_unknown")) is None


async def test_open_executions_are_those_of_the_asked_shards_that_have_not_ended(store: Writer) -> None:
    await store.append([beginning(FIRST, shard=1), beginning(SECOND, shard=2), beginning(THIRD, completed(), shard=1)])

    assert await left_open(store, [1]) == [FIRST]
    assert await left_open(store, [1, 2]) == [FIRST, SECOND]
    assert await left_open(store, []) == []


async def test_what_is_open_comes_some_at_a_time_and_each_once(store: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.storage.event_store.RECOVER_AT_ONCE", 3)
    many = [ExecutionId(f"exec_many_{number}") for number in range(9)]
    await store.append([beginning(execution, shard=number % 2) for number, execution in enumerate(many)])

    pages = [list(page) async for page in store.open_executions([0, 1, 2])]

    assert [len(page) for page in pages] == [3, 3, 3]
    assert [execution for page in pages for execution in page] == many[0::2] + many[1::2]


async def test_a_tenant_cannot_read_the_events_of_another(store: Writer) -> None:
    await store.append([beginning(FIRST)])

    assert await store.read(TenantId("other"), FIRST) == []


async def test_a_tenant_cannot_continue_the_execution_of_another(store: Writer) -> None:
    first = beginning(FIRST)
    await store.append([first])

    with pytest.raises(VersionConflict):
        await store.append([following(first.state, scheduled("a"), tenant=TenantId("other"))])

    assert len(await store.read(TENANT, FIRST)) == 1


async def test_an_append_cancelled_at_any_moment_leaves_the_store_usable_and_whole(store: Writer) -> None:
    """Its outcome is unknown, even for a moment afterwards; a conflict then says to read again."""
    await store.append([beginning(FIRST)])

    async def append_two() -> bool:
        state = await store.load(FIRST)
        assert state is not None
        with suppress(VersionConflict):
            await store.append([following(state, scheduled("a"), scheduled("b"))])
            return True
        return False

    for turns in range(25):
        append = asyncio.ensure_future(append_two())
        for _ in range(turns):
            await asyncio.sleep(0)
        append.cancel()
        await asyncio.gather(append, return_exceptions=True)

    await eventually(append_two)
    versions = [version for version, _ in await stored(store)]
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) % 2 == 1  # the start, and pairs


async def test_the_list_of_executions_follows_the_events(store: Writer, db: Database) -> None:
    listed = SqlExecutions(db)
    first = beginning(FIRST)
    late = following(ExecutionState(), started(SECOND, at_ms=2_000), execution=SECOND)
    foreign = ExecutionId("exec_foreign")
    other = TenantId("other")
    await store.append([first, late])
    await store.append([following(ExecutionState(), started(foreign, other), execution=foreign, tenant=other)])

    assert [(item.id, item.status, item.ended_at_ms) for item in (await listed.page(TENANT, limit=10)).items] == [
        (SECOND, Status.RUNNING, None),
        (FIRST, Status.RUNNING, None),
    ]

    await store.append([following(first.state, completed())])

    summary = await listed.get(TENANT, FIRST)
    assert summary is not None
    assert (summary.workflow.name, summary.workflow.version, summary.trace) == ("support", "1.0.0", "t1")
    assert (summary.status, summary.started_at_ms, summary.ended_at_ms) == (Status.COMPLETED, 1_000, 4_000)
    ended, running = ExecutionFilter(statuses=("completed",)), ExecutionFilter(statuses=("running",))
    assert [item.id for item in (await listed.page(TENANT, ended, limit=10)).items] == [FIRST]
    assert [item.id for item in (await listed.page(TENANT, limit=1)).items] == [SECOND]
    assert (await listed.page(TENANT, ExecutionFilter(workflow="unknown"), limit=10)).items == ()
    assert (await listed.count(TENANT), await listed.count(TENANT, running)) == (2, 1)
    assert await listed.get(TENANT, foreign) is None


async def test_whatever_else_the_database_answers_is_told_as_unavailable(store: Writer, db: Database) -> None:
    async with db.owning() as connection:
        await connection.exec_driver_sql("DROP TABLE event_store")

    with pytest.raises(StorageUnavailable, match="event_store"):
        await store.append([beginning(FIRST)])
    with pytest.raises(StorageUnavailable, match="event_store"):
        await store.load(FIRST)


def loop(state: ExecutionState, rounds: int) -> list[NewEvents]:
    """A long history that goes round: each round schedules a step and ends it."""
    moves = []
    for _ in range(rounds):
        moves.append(following(state, scheduled("a"), succeeded("a")))
        state = moves[-1].state
    return moves


async def snapshot_versions(db: Database) -> list[int]:
    async with db.system_read() as connection:
        return list(await connection.scalars(select(execution_snapshots.c.version)))


async def test_the_state_is_stored_beside_a_long_history_and_read_back_from_there(db: Database) -> None:
    store = await Writer.of(db, snapshot_every=10)
    first = beginning(FIRST)
    await store.append([first, beginning(SECOND)])
    moves = loop(first.state, 17)
    for move in moves:
        await store.append([move])

    assert await snapshot_versions(db) == [31]  # the newest only, and only of the one with a history
    assert await store.load(FIRST) == moves[-1].state
    async with db.system_write() as connection:  # what the snapshot stands for is not read any more
        await connection.execute(delete(event_store).where(event_store.c.version < 31))
    assert await store.load(FIRST) == moves[-1].state
    assert await store.load_all([SECOND, FIRST]) == [moves[-1].state]


async def test_a_snapshot_of_another_format_is_ignored_and_the_events_are_folded(db: Database) -> None:
    store = await Writer.of(db, snapshot_every=10)
    first = beginning(FIRST)
    moves = loop(first.state, 8)
    await store.append([first, *moves])
    async with db.system_write() as connection:
        await connection.execute(update(execution_snapshots).values(format="0-older", state=b"not ours"))

    assert await store.load(FIRST) == moves[-1].state

    later = loop(moves[-1].state, 5)
    await store.append(later)  # and it is replaced by one of ours
    assert await snapshot_versions(db) == [21]
    assert await store.load(FIRST) == later[-1].state


async def test_a_large_state_is_stored_less_often(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.storage.state_snapshots.STATE_SNAPSHOT_BYTES", 100)
    written: list[bytes] = []
    monkeypatch.setattr(
        "control_plane.storage.append.due",
        lambda new, every: (data := due(new, every)) and (written.append(data) or data),
    )
    store = await Writer.of(db, snapshot_every=10)
    first = beginning(FIRST)
    moves = loop(first.state, 50)
    await store.append([first])
    for move in moves:
        await store.append([move])

    assert 0 < len(written) < 5  # of ten multiples
    assert await store.load(FIRST) == moves[-1].state


async def test_a_refused_batch_leaves_no_snapshot(db: Database) -> None:
    store = await Writer.of(db, snapshot_every=10)
    first = beginning(FIRST)
    await store.append([first])

    with pytest.raises(VersionConflict):
        await store.append([*loop(first.state, 10), beginning(SECOND), beginning(SECOND)])
    with pytest.raises(ShardLost):
        await store.append(loop(first.state, 10), {3: 99})

    assert await snapshot_versions(db) == []


async def test_loading_does_not_grow_with_history(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of events read is what costs: it has a bound, however many are stored."""
    read: list[str] = []
    monkeypatch.setattr("control_plane.storage.event_store.decode", lambda data: (read.append(data), decode(data))[1])
    store = await Writer.of(db, snapshot_every=10)
    first = beginning(FIRST)
    moves = loop(first.state, 150)
    await store.append([first])
    for move in moves:
        await store.append([move])

    assert await store.load(FIRST) == moves[-1].state
    assert len(read) <= 10


async def test_many_executions_are_loaded_at_once(store: Writer) -> None:
    many = [ExecutionId(f"exec_many_{number:03}") for number in range(50)]
    batch = [beginning(execution, scheduled("a")) for execution in many]
    await store.append(batch)

    states = await store.load_all([*many, ExecutionId("exec_unknown")])

    assert {state.execution: state for state in states} == {new.execution: new.state for new in batch}
    assert await store.load_all([]) == []
