"""What people and recovery ask is answered from an index, on both engines, whatever the size of the tables."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import event, insert, text

from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId
from bench.subjects.queries import measured
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace
from control_plane.registry.workflows import WorkflowFilter
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.migrate import upgrade
from control_plane.storage.plans import SqlPlans
from control_plane.storage.state_snapshots import FORMAT, packed
from control_plane.storage.tables import execution_snapshots
from control_plane.storage.tasks import SqlTasks
from control_plane.storage.workflows import SqlWorkflows

ACME = TenantId("acme")
ONE = ExecutionId("exec_00999999")  # what is there plays no part in how it is looked for
ROWS = 3_000
BIG = ("executions", "event_store", "plan_steps", "human_tasks", "workflows")

NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)"
ID = {"sqlite": "printf('exec_%08d', n)", "postgresql": "'exec_' || lpad(n::text, 8, '0')"}
FILL = (
    (
        "INSERT INTO executions SELECT {id}, 'acme', 'wf', 'w' || (n % 7), '1', CASE WHEN n % 50 = 0 THEN 'running'"
        " ELSE 'completed' END, n % 16, 't', n, CASE WHEN n % 50 = 0 THEN NULL ELSE n END FROM numbers"
    ),
    (
        "INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch)"
        " SELECT 'acme', {id}, 1, 'e', '{{}}', 1, 1 FROM numbers"
    ),
    "INSERT INTO workflows SELECT {id}, 'acme', {id}, '1', 'd', 'fsm', 'y', '{{}}', NULL, n FROM numbers",
    (
        "INSERT INTO plan_steps SELECT {id}, 'a', 'acme', 1, 'a', 'a', NULL, 'scheduled', 1, NULL, NULL, 1, NULL"
        " FROM numbers"
    ),
    (
        "INSERT INTO human_tasks SELECT {id}, 'a', 'acme', 1, 'open', n, CASE WHEN n % 50 = 0 THEN NULL ELSE n END"
        " FROM numbers"
    ),
)


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        async with opened.owning() as connection:
            for statement in FILL:
                target, select = statement.split(" SELECT ", 1)
                filled = f"{target} {NUMBERS} SELECT {select}".format(id=ID[opened.engine])
                await connection.execute(text(filled), {"rows": ROWS})
            snapshot = {"execution_id": ONE, "tenant_id": ACME, "version": 7, "format": FORMAT}
            state = packed(ExecutionState(version=7, tenant=ACME, execution=ONE))
            await connection.execute(insert(execution_snapshots), snapshot | {"state": state})
            await connection.execute(text("ANALYZE"))
        yield opened


async def plans_of(db: Database, ask: Callable[[], Awaitable[Any]]) -> list[str]:
    """The plans of every query that `ask` makes on the connections that read."""
    seen: list[tuple[str, Any]] = []

    def remember(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT") and "set_config" not in statement:
            seen.append((statement, parameters))

    engines = {db._pools.tenant_readers.sync_engine, db._pools.system_readers.sync_engine}
    for engine in engines:
        event.listen(engine, "before_cursor_execute", remember)
    try:
        await ask()
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", remember)
    assert seen
    explain = "EXPLAIN QUERY PLAN" if db.engine == "sqlite" else "EXPLAIN"
    found = []
    async with db.read(ACME) as connection:
        for statement, parameters in seen:
            lines = await connection.exec_driver_sql(f"{explain} {statement}", parameters)
            found.append("\n".join(str(row[-1]) for row in lines))
    return found


QUESTIONS: dict[str, Callable[[Database], Awaitable[Any]]] = {
    "newest executions": lambda db: SqlExecutions(db).page(ACME, limit=50),
    "failed executions": lambda db: SqlExecutions(db).page(ACME, ExecutionFilter(statuses=("failed",)), limit=50),
    "executions of a workflow": lambda db: SqlExecutions(db).page(ACME, ExecutionFilter(workflow="w3"), limit=50),
    "the next page": lambda db: SqlExecutions(db).page(ACME, after=ExecutionPlace(1_500, "exec_00001500"), limit=50),
    "one execution": lambda db: SqlExecutions(db).get(ACME, ONE),
    "events of an execution": lambda db: SqlEventStore(db).read(ACME, ONE, limit=100),
    "the state of an execution": lambda db: SqlEventStore(db).load(ONE),
    "what is open in a shard": lambda db: SqlEventStore(db).open_executions([3]),
    "newest workflows": lambda db: SqlWorkflows(db).list(ACME, WorkflowFilter(), limit=50),
    "the newest version": lambda db: SqlWorkflows(db).latest(ACME, "exec_00000042"),
    "what waits for people": lambda db: SqlTasks(db).list_open(ACME, after=(10**9, ONE, StepPath("a")), limit=50),
    "a plan": lambda db: SqlPlans(db).steps(ACME, ExecutionId("exec_unknown"), limit=50),
}


async def test_no_question_reads_a_whole_table(db: Database) -> None:
    whole = re.compile(rf"(Seq Scan on|SCAN) ({'|'.join(BIG)})\w*(?! USING)", re.IGNORECASE)
    for name, ask in QUESTIONS.items():
        for plan in await plans_of(db, lambda ask=ask: ask(db)):
            found = [line for line in plan.splitlines() if whole.search(line) and "USING" not in line.upper()]
            assert found == [], f"{name}:\n{plan}"


async def test_the_newest_come_from_the_index_in_their_order_without_sorting(db: Database) -> None:
    for name in (
        "newest executions",
        "the next page",
        "failed executions",
        "executions of a workflow",
        "newest workflows",
    ):
        for plan in await plans_of(db, lambda name=name: QUESTIONS[name](db)):
            assert "Sort" not in plan.replace("Sort Key", ""), f"{name}:\n{plan}"
            assert "TEMP B-TREE" not in plan, f"{name}:\n{plan}"


async def test_what_is_open_is_found_in_the_small_index(db: Database) -> None:
    for plan in await plans_of(db, lambda: QUESTIONS["what is open in a shard"](db)):
        assert "open_by_shard" in plan or "shard_idx" in plan, plan


async def test_taking_up_an_execution_reads_only_what_came_after_its_snapshot(db: Database) -> None:
    plans = await plans_of(db, lambda: QUESTIONS["the state of an execution"](db))

    tail = [line for plan in plans for line in plan.splitlines() if "version" in line and "execution_id" in line]
    assert any(re.search(r"Index Cond: .*version >|execution_id=\? AND version>\?", line) for line in tail), plans


async def test_what_waits_for_people_is_found_in_the_index_of_what_is_open(db: Database) -> None:
    for plan in await plans_of(db, lambda: QUESTIONS["what waits for people"](db)):
        assert "human_tasks_pending" in plan or re.search(r"human_tasks_\w+_opened_at_ms_", plan), plan


async def test_every_question_of_the_benchmark_is_answered() -> None:
    """bench/subjects/queries.py at a size for every day; the full one has 10 million events."""
    figures = await measured(Console(quiet=True), 10_000, 500)

    assert all(figure["p95 ms"] > 0 for figure in figures.values())
    assert {"newest executions", "tasks for people", "the feed from somewhere"} <= set(figures)
