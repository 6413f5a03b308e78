"""What follows from the events: plans as people look at them, and both projections made anew to the same rows."""

from collections.abc import AsyncIterator, Mapping
from functools import reduce
from typing import Any

import pytest
from sqlalchemy import insert, text

from agentflow.contracts.step import StepFault
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionStarted,
    StepFailed,
    StepScheduled,
    StepSucceeded,
    TaskAnswered,
    TaskHalted,
    TaskOpened,
    WorkflowRef,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import (
    AgentName,
    ExecutionId,
    StepPath,
    TenantId,
    TraceId,
    UlidSource,
    WorkerId,
    WorkflowId,
    shard_of,
)
from agentflow.ports import NewEvents
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.leases import SqlShardLeases, record_shards
from control_plane.storage.migrate import upgrade
from control_plane.storage.plans import SqlPlans
from control_plane.storage.rebuild import rebuild
from control_plane.storage.tables import executions, plan_steps
from control_plane.storage.tasks import SqlTasks

ACME, OTHER = TenantId("acme"), TenantId("other")
SHARDS = 16
FAULT = StepFault("timeout", "No result.", retryable=True)


def scheduled(name: str, attempt: int = 1) -> StepScheduled:
    return StepScheduled(2_000 + attempt, StepPath(name), name, attempt, AgentName("a"), {}, 500, tool="kb")


def succeeded(name: str) -> StepSucceeded:
    return StepSucceeded(3_000, StepPath(name), 1, {}, WorkerId("wrk_1"), 2_500, 2_900)


def failed(name: str, retry_at_ms: int | None = None) -> StepFailed:
    return StepFailed(3_500, StepPath(name), 1, FAULT, retry_at_ms=retry_at_ms, worker=WorkerId("wrk_2"))


def asked(name: str, at_ms: int = 2_000) -> TaskOpened:
    return TaskOpened(at_ms, StepPath(name), {"title": f"Look at {name}"})


class History:
    """Appends whole stories, each to an execution of its own."""

    def __init__(self, db: Database, epochs: Mapping[int, int]) -> None:
        self._store = SqlEventStore(db, snapshot_every=10)
        self._epochs = epochs
        self._ids = UlidSource(lambda: 1_700_000_000_000)
        self._states: dict[ExecutionId, ExecutionState] = {}

    async def tell(self, *events: Event, tenant: TenantId = ACME) -> ExecutionId:
        execution = self._ids.execution()
        workflow = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")
        self._states[execution] = ExecutionState()
        await self.go_on(execution, ExecutionStarted(1_000, execution, tenant, workflow, {}, TraceId("t")), *events)
        return execution

    async def go_on(self, execution: ExecutionId, *events: Event) -> None:
        before = self._states[execution]
        after = reduce(evolve, events, before)
        shard = shard_of(execution, SHARDS)
        left = tuple(task.path for task in before.tasks.values()) if after.ended else ()
        await self._store.append(
            [NewEvents(execution, after.tenant, shard, before.version, events, after, left)], self._epochs
        )
        self._states[execution] = after


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        await record_shards(opened, SHARDS)
        yield opened


@pytest.fixture
async def history(db: Database) -> History:
    return History(db, await SqlShardLeases(db).acquire(range(SHARDS), "test", lease_s=60))


async def rows(db: Database, *tables: str) -> list[tuple[Any, ...]]:
    async with db.system_read() as connection:
        found = []
        for table in tables:
            found += [tuple(row) for row in await connection.execute(text(f"SELECT * FROM {table} ORDER BY 1, 2"))]
        return found


async def test_a_plan_shows_each_step_as_far_as_it_has_come(history: History, db: Database) -> None:
    plans = SqlPlans(db)
    execution = await history.tell(scheduled("b"), scheduled("a"), succeeded("b"), failed("a", retry_at_ms=9_000))

    first = await plans.steps(ACME, execution, limit=10)
    assert [(step.path, step.number, step.status, step.attempt) for step in first] == [
        ("b", 2, "succeeded", 1),
        ("a", 3, "waiting", 1),
    ]
    assert (first[0].worker, first[0].ended_at_ms, first[0].tool) == ("wrk_1", 3_000, "kb")
    assert (first[1].fault, first[1].ended_at_ms) == ("timeout", None)

    await history.go_on(execution, scheduled("a", attempt=2), failed("a"), scheduled("c"))

    assert [(step.path, step.status, step.attempt) for step in await plans.steps(ACME, execution, limit=10)] == [
        ("b", "succeeded", 1),
        ("a", "failed", 2),
        ("c", "scheduled", 1),
    ]
    assert [step.path for step in await plans.steps(ACME, execution, after_number=2, limit=1)] == ["a"]


async def test_looking_again_reads_nothing_that_was_read_before(history: History, db: Database) -> None:
    execution = await history.tell(scheduled("a"))
    await SqlPlans(db).steps(ACME, execution, limit=10)
    async with db.system_write() as connection:
        await connection.execute(text("UPDATE event_store SET event_data = '\"unreadable\"' WHERE version <= 2"))

    await history.go_on(execution, succeeded("a"))

    assert [step.status for step in await SqlPlans(db).steps(ACME, execution, limit=10)] == ["succeeded"]


async def test_another_tenants_plan_is_not_there(history: History, db: Database) -> None:
    execution = await history.tell(scheduled("a"))

    assert await SqlPlans(db).steps(OTHER, execution, limit=10) == []
    assert await SqlPlans(db).steps(ACME, ExecutionId("exec_unknown"), limit=10) == []
    assert await rows(db, "plans") == []


async def test_what_waits_for_people_is_listed_until_it_is_answered_withdrawn_or_over(
    history: History, db: Database
) -> None:
    tasks = SqlTasks(db)
    first = await history.tell(asked("a", at_ms=2_000), asked("b", at_ms=2_001))
    second = await history.tell(asked("a", at_ms=1_999))
    foreign = await history.tell(asked("a"), tenant=OTHER)
    at_once = await history.tell(asked("a"), ExecutionCompleted(4_000, {}))

    listed = await tasks.list_open(ACME, limit=10)
    assert [(task.execution, task.path) for task in listed] == [(second, "a"), (first, "a"), (first, "b")]
    assert (listed[0].workflow, listed[0].opened_at_ms, listed[0].task) == ("w", 1_999, {"title": "Look at a"})
    assert [task.execution for task in await tasks.list_open(OTHER, limit=10)] == [foreign]
    assert await tasks.list_open(ACME, limit=1) == listed[:1]
    assert await tasks.list_open(ACME, after=listed[0].place, limit=10) == listed[1:]
    assert await tasks.list_open(ACME, after=listed[2].place, limit=1, newest_first=True) == [listed[1]]
    assert await tasks.count_open(ACME) == 3

    await history.go_on(first, TaskAnswered(3_000, StepPath("a"), "yes"), TaskHalted(3_001, StepPath("b")))
    await history.go_on(second, ExecutionCompleted(4_000, {}))

    assert await tasks.list_open(ACME, limit=10) == []
    assert sorted((row[0], row[1], row[4], row[6]) for row in await rows(db, "human_tasks")) == sorted(
        [
            (first, "a", "answered", 3_000),
            (first, "b", "withdrawn", 3_001),
            (second, "a", "withdrawn", 4_000),
            (foreign, "a", "open", None),
            (at_once, "a", "withdrawn", 4_000),
        ]
    )


async def test_every_projection_is_made_anew_to_the_identical_rows(history: History, db: Database) -> None:
    told = [
        await history.tell(scheduled("a"), succeeded("a"), ExecutionCompleted(4_000, {})),
        await history.tell(scheduled("a"), failed("a")),
        await history.tell(scheduled("a"), tenant=OTHER),
        await history.tell(*(event for n in range(20) for event in (scheduled(f"s{n}"), succeeded(f"s{n}")))),
        await history.tell(asked("a"), asked("b"), TaskAnswered(3_000, StepPath("a"), "yes")),
        await history.tell(asked("a")),
    ]
    await history.go_on(told[-1], ExecutionCompleted(4_000, {}))
    for execution, tenant in zip(told, (ACME, ACME, OTHER, ACME, ACME, ACME), strict=True):
        await SqlPlans(db).steps(tenant, execution, limit=1)
    before = await rows(db, "executions", "plans", "plan_steps", "human_tasks")
    assert len(before) == 6 + 6 + 23 + 3
    async with db.system_write() as connection:
        await connection.execute(text("UPDATE executions SET status = 'lost', ended_at_ms = 5"))
        await connection.execute(text("DELETE FROM plans"))
        await connection.execute(text("UPDATE human_tasks SET status = 'lost', ended_at_ms = 5 WHERE path = 'a'"))
        await connection.execute(text("UPDATE plan_steps SET status = 'lost' WHERE path <> 'a'"))
        ghost = {column.name: 1 if column.type.python_type is int else "exec_ghost" for column in executions.columns}
        await connection.execute(insert(executions), ghost)
        ghost = {column.name: 1 if column.type.python_type is int else "exec_0" for column in plan_steps.columns}
        await connection.execute(insert(plan_steps), ghost)

    done = await rebuild(db)

    assert (done.executions, done.events) == (6, 4 + 3 + 2 + 1 + 40 + 4 + 3)
    assert await rows(db, "executions", "plans", "plan_steps", "human_tasks") == before


async def test_a_rebuild_beside_writers_loses_none_of_what_they_write(history: History, db: Database) -> None:
    import asyncio

    told = [await history.tell(scheduled("a")) for _ in range(60)]

    async def finish() -> None:
        for execution in told:
            await history.go_on(execution, succeeded("a"), ExecutionCompleted(4_000, {}))

    await asyncio.gather(finish(), rebuild(db), rebuild(db))

    listed = (await SqlExecutions(db).page(ACME, limit=100)).items
    assert {item.status for item in listed} == {"completed"}
    assert len(listed) == 60
    before = await rows(db, "executions")
    await rebuild(db)
    assert await rows(db, "executions") == before


async def test_an_empty_database_has_nothing_to_rebuild(db: Database) -> None:
    assert (await rebuild(db)).executions == 0
