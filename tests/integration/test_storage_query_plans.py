"""What people and recovery ask is answered from an index, on both engines, whatever the size of the tables."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import event, insert, text

from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId
from bench.subjects.queries import measured
from control_plane.audit.log import AuditFilter
from control_plane.live.feed import Topic
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace
from control_plane.registry.workflows import WorkflowFilter
from control_plane.storage.audit import SqlAudit
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.live import SqlLiveEvents
from control_plane.storage.migrate import upgrade
from control_plane.storage.plans import SqlPlans
from control_plane.storage.state_snapshots import FORMAT, packed
from control_plane.storage.storage_counts import StorageCounts
from control_plane.storage.tables import audits, execution_snapshots
from control_plane.storage.tasks import SqlTasks
from control_plane.storage.tenants import SqlTenants
from control_plane.storage.workflows import SqlWorkflows
from tests.rows import any_row

ACME = TenantId("acme")
ONE = ExecutionId("exec_00999999")  # what is there plays no part in how it is looked for
ROWS = 3_000
BIG = ("executions", "event_store", "plan_steps", "human_tasks", "workflows", "audits")

NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)"
ID = {"sqlite": "printf('exec_%08d', n)", "postgresql": "'exec_' || lpad(n::text, 8, '0')"}
FILL = (
    (
        "INSERT INTO executions SELECT {id}, 'acme', 'wf', 'w' || (n % 7), '1', CASE WHEN n % 50 = 0 THEN 'running'"
        " ELSE 'completed' END, n % 16, 't', n, CASE WHEN n % 50 = 0 THEN NULL ELSE n END FROM numbers"
    ),
    (
        "INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch)"
        " SELECT 'acme', {id}, 1, 'e', '{{\"type\": \"execution.begun.v1\", \"at_ms\": 1}}', 1, 1 FROM numbers"
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
            await connection.execute(insert(audits), [audit(number) for number in range(ROWS)])
            snapshot = {"execution_id": ONE, "tenant_id": ACME, "version": 7, "format": FORMAT}
            state = packed(ExecutionState(version=7, tenant=ACME, execution=ONE))
            await connection.execute(insert(execution_snapshots), snapshot | {"state": state})
            await connection.execute(text("ANALYZE"))
        yield opened


def audit(number: int) -> dict[str, Any]:
    seven = {"actor_id": f"u{number % 7}", "resource_id": f"r{number % 7}"}
    return any_row(audits, ACME) | {"id": f"aud_{number:08}", "record_id": f"aud_{number:08}", "seq": number, **seven}


async def plans_of(
    db: Database, ask: Callable[[], Awaitable[Any]], *, generic: bool = False, many: bool = False
) -> list[str]:
    """The plans of every query that `ask` makes on the connections that read, each with the rights it was made with.

    `generic`: whatever the values are. `many`: as if there were more than the few rows that are faster sorted.
    """
    seen: list[tuple[Any, str, Any]] = []

    def remember(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT") and "set_config" not in statement:
            seen.append((connection.engine, statement, parameters))

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
    if generic and db.engine == "postgresql":
        explain = "EXPLAIN (GENERIC_PLAN)"
    found = []
    for engine, statement, parameters in seen:
        of_system = engine is db._pools.system_readers.sync_engine
        async with db.system_read() if of_system else db.read(ACME) as connection:
            if many and db.engine == "postgresql":
                await connection.execute(text("SET LOCAL enable_bitmapscan = off"))
            lines = await connection.exec_driver_sql(f"{explain} {statement}", parameters)
            found.append("\n".join(str(row[-1]) for row in lines))
    return found


def audited(db: Database, wanted: AuditFilter) -> Awaitable[Any]:
    return SqlAudit(db, SystemClock()).page(ACME, wanted, limit=50, after=1_000, newest_first=True)


QUESTIONS: dict[str, Callable[[Database], Awaitable[Any]]] = {
    "newest executions": lambda db: SqlExecutions(db).page(ACME, limit=50),
    "failed executions": lambda db: SqlExecutions(db).page(ACME, ExecutionFilter(statuses=("failed",)), limit=50),
    "executions of a workflow": lambda db: SqlExecutions(db).page(ACME, ExecutionFilter(workflow="w3"), limit=50),
    "the next page": lambda db: SqlExecutions(db).page(ACME, after=ExecutionPlace(1_500, "exec_00001500"), limit=50),
    "one execution": lambda db: SqlExecutions(db).get(ACME, ONE),
    "events of an execution": lambda db: SqlEventStore(db).read(ACME, ONE, limit=100),
    "the state of an execution": lambda db: SqlEventStore(db).load(ONE),
    "what is open in a shard": lambda db: anext(SqlEventStore(db).open_executions([2])),
    "the feed": lambda db: SqlLiveEvents(db).page(after=1_000, limit=100),
    "the feed of a workflow": lambda db: SqlLiveEvents(db).page(after=1_000, limit=100, topic=Topic(ACME, "w3")),
    "newest workflows": lambda db: SqlWorkflows(db).list(ACME, WorkflowFilter(), limit=50),
    "the newest version": lambda db: SqlWorkflows(db).latest(ACME, "exec_00000042"),
    "what waits for people": lambda db: SqlTasks(db).list_open(ACME, after=(10**9, ONE, StepPath("a")), limit=50),
    "executions of a trace": lambda db: SqlExecutions(db).with_trace(ACME, "t", from_ms=1_500, until_ms=1_510),
    "the audit trail": lambda db: audited(db, AuditFilter()),
    "what somebody did": lambda db: audited(db, AuditFilter(actor="u3")),
    "what was done to something": lambda db: audited(db, AuditFilter(resource="r3")),
    "what a tenant stores": lambda db: SqlTenants(db).storage_bytes(ACME),
    "a plan": lambda db: SqlPlans(db).steps(ACME, ExecutionId("exec_unknown"), limit=50),
}


async def test_no_question_reads_a_whole_table(db: Database) -> None:
    whole = re.compile(rf"(Seq Scan on|SCAN) ({'|'.join(BIG)})(?!\w*_seq\b)\w*(?! USING)", re.IGNORECASE)
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
        "the audit trail",
        "what somebody did",
        "what was done to something",
    ):
        for plan in await plans_of(db, lambda name=name: QUESTIONS[name](db)):
            assert "Sort" not in plan.replace("Sort Key", ""), f"{name}:\n{plan}"
            assert "TEMP B-TREE" not in plan, f"{name}:\n{plan}"


async def test_what_is_open_is_found_in_the_small_index_and_in_its_order(db: Database) -> None:
    for plan in await plans_of(db, lambda: QUESTIONS["what is open in a shard"](db), many=True):
        assert re.search(r"Index (Only )?Scan using \w+_shard_id_idx|USING INDEX executions_open_by_shard", plan), plan
        assert not re.search(r"Sort(?! Key)|TEMP B-TREE", plan), plan


async def test_the_feed_is_read_in_its_order_and_joins_nothing(db: Database) -> None:
    """Also by a plan for any values, which is what PostgreSQL comes to use for a question that is asked often."""
    for question in ("the feed", "the feed of a workflow"):
        for plan in await plans_of(db, lambda question=question: QUESTIONS[question](db), generic=True):
            assert not re.search(r"Hash|Join|Nested Loop|Sort(?! Key)|TEMP B-TREE", plan), f"{question}:\n{plan}"


async def test_taking_up_an_execution_reads_only_what_came_after_its_snapshot(db: Database) -> None:
    plans = await plans_of(db, lambda: QUESTIONS["the state of an execution"](db))

    tail = [line for plan in plans for line in plan.splitlines() if "version" in line and "execution_id" in line]
    assert any(re.search(r"Index Cond: .*version >|execution_id=\? AND version>\?", line) for line in tail), plans


async def test_what_waits_for_people_is_found_in_the_index_of_what_is_open(db: Database) -> None:
    for plan in await plans_of(db, lambda: QUESTIONS["what waits for people"](db)):
        assert "human_tasks_pending" in plan or re.search(r"human_tasks_\w+_opened_at_ms_", plan), plan


async def test_counting_what_is_stored_reads_each_page_in_the_order_of_an_index(db: Database, tmp_path: Path) -> None:
    """However far it has come: neither the pages before nor those after are read for it."""
    counts = StorageCounts(db, await open_artifacts(f"file://{tmp_path}/artifacts"), SystemClock(), page=500)
    plans = await plans_of(db, counts.count)

    assert len(plans) > 2 * (ROWS / 500) * 5
    for plan in plans:
        assert "TEMP B-TREE FOR ORDER BY" not in plan.upper(), plan
        read = [line for line in plan.splitlines() if re.search(rf"(Seq Scan on|SCAN) ({'|'.join(BIG)})", line)]
        assert [line for line in read if "USING" not in line.upper()] == [], plan


async def test_every_question_of_the_benchmark_is_answered() -> None:
    """bench/subjects/queries.py at a size for every day; the full one has 10 million events."""
    figures = await measured(Console(quiet=True), 10_000, 500)

    assert all(figure["p95 ms"] > 0 for figure in figures.values())
    assert {"newest executions", "tasks for people", "the feed from anywhere"} <= set(figures)
