"""The purge: it removes exactly what its plan lists, with everything that belongs to it, and nothing else."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path

import msgspec
import pytest
import zstandard
from rich.console import Console
from sqlalchemy import func, insert, select, text, update

from agentflow.artifacts.opening import open_artifacts, open_keeper
from agentflow.artifacts.store import KeptArtifacts
from agentflow.contracts.usage import TOKEN_KINDS
from agentflow.execution.events import ExecutionCompleted, ExecutionStarted, StepScheduled, StepSucceeded, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId, encode_ulid
from agentflow.ports import NewEvents, Shelf
from bench.subjects.retention import measured
from control_plane.costs.budget import Budget
from control_plane.storage import day_drops
from control_plane.storage.budgets import SqlBudgets
from control_plane.storage.database import Database, database
from control_plane.storage.days import Part, day_of, make_days, parts
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.exports import Exports
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.retention import RetentionJob
from control_plane.storage.retention_rules import DAYS_DEFAULT, InvalidRetention, Rules, parse_rules
from control_plane.storage.retention_schedule import claim
from control_plane.storage.tables import (
    agent_states,
    audits,
    cost_observations,
    event_store,
    execution_snapshots,
    executions,
    idempotency_keys,
    metadata,
    snapshots,
)
from control_plane.storage.tables.types import Retention
from control_plane.storage.usage import _DISK, storage_report
from tests.rows import any_row

DAY_MS = 24 * 3600 * 1000
TOKENS = dict.fromkeys((f"tokens_{kind}" for kind in TOKEN_KINDS), 1)
NOW_MS = 1_800_000_000_000
ACME, OTHER = TenantId("acme"), TenantId("other")


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
async def artifacts(tmp_path: Path) -> KeptArtifacts:
    return await open_artifacts(f"file://{tmp_path}/artifacts")


@pytest.fixture
def job(db: Database, artifacts: KeptArtifacts) -> RetentionJob:
    return RetentionJob(db, artifacts, Rules(), Exports(None))


def began(days_ago: float, number: int = 0) -> ExecutionId:
    at_ms = NOW_MS - int(days_ago * DAY_MS)
    return ExecutionId(f"exec_{encode_ulid((at_ms << 80) | number)}")


async def store_of(db: Database) -> tuple[SqlEventStore, dict[int, int]]:
    epochs = await SqlShardLeases(db).acquire(range(4), "writer", lease_s=600)
    return SqlEventStore(db, snapshot_every=2), dict(epochs)


def run_of(execution: ExecutionId, days_ago: float, *, tenant: TenantId = ACME, ended: bool = True) -> NewEvents:
    at_ms = NOW_MS - int(days_ago * DAY_MS)
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "d1")
    events = [
        ExecutionStarted(at_ms, execution, tenant, workflow, {"text": "x" * 200}, TraceId("t")),
        StepScheduled(at_ms, StepPath("a"), "a", 1, AgentName("x"), {"text": "y" * 200}, 500),
        *([ExecutionCompleted(at_ms + 1, {"answer": 42})] if ended else []),
    ]
    return NewEvents(execution, tenant, 1, 0, tuple(events), reduce(evolve, events, ExecutionState()))


async def rows(db: Database, table) -> int:
    async with db.system_read() as connection:
        return await connection.scalar(select(func.count()).select_from(table)) or 0


def spent(tenant: TenantId, days_ago: float) -> dict[str, object]:
    execution = began(days_ago)
    return {
        "execution_id": execution, "id": f"{tenant}#1/0", "tenant_id": tenant, "workflow": "w", "path": "a",
        "attempt": 1, "agent": "x", "resource": "m", "microdollars": 7, **TOKENS,
        "at_ms": NOW_MS - int(days_ago * DAY_MS),
    }  # fmt: skip


TOTAL = Budget(
    tenant=ACME, id="bud_1", scope="tenant", name="", period="total", microdollars=10, tokens=None,
    on_exceed="stop", warn_at_percent=80, created_at_ms=NOW_MS - 20 * DAY_MS,
)  # fmt: skip


async def test_what_a_budget_still_counts_is_kept_whatever_its_retention_says(db: Database, artifacts) -> None:
    await SqlBudgets(db).add(TOTAL)
    async with db.system_write() as connection:
        rows_there = [spent(tenant, days) for tenant in (ACME, OTHER) for days in (5, 10, 30)]
        await connection.execute(insert(cost_observations), rows_there)

    await RetentionJob(db, artifacts, parse_rules("cost=7d"), Exports(None)).run(NOW_MS)

    async with db.system_read() as connection:
        left = (await connection.execute(select(cost_observations.c.tenant_id, cost_observations.c.at_ms))).all()
    days = sorted((tenant, round((NOW_MS - at_ms) / DAY_MS)) for tenant, at_ms in left)
    assert days == [(ACME, 5), (ACME, 10), (OTHER, 5)]
    assert (await SqlBudgets(db).used(TOTAL, from_ms=TOTAL.created_at_ms)).microdollars == 14


async def test_a_budget_that_goes_during_a_purge_takes_nothing_along_that_was_not_planned(
    db: Database, artifacts: KeptArtifacts
) -> None:
    await make_days(db, NOW_MS - 12 * DAY_MS, ahead=12)
    store, epochs = await store_of(db)
    await store.append([run_of(began(40), 40)], epochs)
    await SqlBudgets(db).add(TOTAL)
    async with db.system_write() as connection:
        await connection.execute(insert(cost_observations), [spent(ACME, 10)])

    async def remove_the_budget(*_: object) -> None:
        await SqlBudgets(db).remove(ACME, TOTAL.id)

    job = RetentionJob(db, artifacts, parse_rules("cost=7d"), Exports(None), remove_the_budget)
    removed = await job.run(NOW_MS)

    assert [removal.kind for removal in removed.removals] == ["history"]
    assert await rows(db, cost_observations) == 1
    assert [removal.kind for removal in (await job.run(NOW_MS)).removals] == ["cost"]


async def test_a_run_removes_exactly_what_the_plan_lists(db: Database, artifacts: KeptArtifacts, job) -> None:
    store, epochs = await store_of(db)
    old, fresh, still_open, foreign = began(40), began(5), began(50), began(45)
    await store.append(
        [
            run_of(old, 40),
            run_of(fresh, 5),
            run_of(still_open, 50, ended=False),
            run_of(foreign, 45, tenant=OTHER),
        ],
        epochs,
    )
    for execution, tenant in ((old, ACME), (fresh, ACME), (still_open, ACME), (foreign, OTHER)):
        await artifacts.put(Shelf(tenant, execution), execution.encode())
    async with db.system_write() as connection:
        row = {"operation": "execute", "body_hash": "h", "created_at_ms": 1}
        keys = [{**row, "tenant_id": ACME, "key": name, "resource_id": name} for name in (old, fresh)]
        await connection.execute(insert(idempotency_keys), keys)

    plan = await job.plan(NOW_MS)
    assert [(removal.tenant, removal.kind, removal.ids) for removal in plan.removals] == [
        (ACME, "history", (old,)),
        (OTHER, "history", (foreign,)),
    ]
    assert await rows(db, event_store) == 11

    assert await job.run(NOW_MS) == plan

    assert [await store.load(execution) is None for execution in (old, fresh, still_open, foreign)] == [
        True, False, False, True,
    ]  # fmt: skip
    assert await rows(db, executions) == 2
    assert await rows(db, event_store) == 5
    assert await rows(db, execution_snapshots) == 2
    assert {use.shelf.owner for use in await artifacts.shelves()} == {fresh, still_open}
    async with db.system_read() as connection:
        assert list(await connection.scalars(select(idempotency_keys.c.key))) == [fresh]
    after = await job.plan(NOW_MS)
    assert (after.removals, after.orphans) == ((), ())


async def test_versions_of_a_workspace_go_with_their_execution_and_not_before(db: Database, artifacts, job) -> None:
    store, epochs = await store_of(db)
    old, fresh = began(40), began(5)
    await store.append([run_of(old, 40), run_of(fresh, 5)], epochs)
    state = {"tenant_id": ACME, "agent_id": "tools", "checkpoint_type": "step", "state_data": b"s", "metadata": {}}
    async with db.system_write() as connection:
        ledgers = [{**state, "instance": name, "version": 1, "created_at_ms": NOW_MS} for name in (old, fresh)]
        await connection.execute(insert(agent_states), ledgers)
    for execution in (old, fresh, "exec_never"):
        for owner in (execution, f"{execution}.1", f"{execution}.2"):
            await artifacts.put(Shelf(ACME, owner), b"a sheet")
    newest_ms = max(use.newest_ms for use in await artifacts.shelves())

    assert (await job.plan(newest_ms + 2 * DAY_MS)).orphans == (
        "acme/exec_never",
        "acme/exec_never.1",
        "acme/exec_never.2",
    )
    await job.run(NOW_MS)

    left = {use.shelf.owner for use in await artifacts.shelves()}
    assert left - {name for name in left if name.startswith("exec_never")} == {fresh, f"{fresh}.1", f"{fresh}.2"}
    async with db.system_read() as connection:
        assert list(await connection.scalars(select(agent_states.c.instance))) == [fresh]


async def test_tenants_may_keep_longer_shorter_or_for_ever(db: Database, artifacts: KeptArtifacts) -> None:
    store, epochs = await store_of(db)
    await store.append([run_of(began(10, n), 10, tenant=TenantId(f"t{n}")) for n in range(3)], epochs)
    await store.append([run_of(began(90, 3), 90, tenant=TenantId("t2"))], epochs)
    rules = parse_rules("history=20d, t0/history=7d ,t2/history=never")

    plan = await RetentionJob(db, artifacts, rules, Exports(None)).run(NOW_MS)

    assert [(removal.tenant, removal.items) for removal in plan.removals] == [("t0", 1)]
    assert await rows(db, executions) == 3


async def test_rows_that_end_by_their_age_go_and_the_newest_state_of_an_agent_stays(db: Database, job) -> None:
    old, new = NOW_MS - 500 * DAY_MS, NOW_MS - DAY_MS
    cost = {
        "tenant_id": ACME, "path": "a", "attempt": 1, "agent": "x", "resource": "model", "workflow": "w",
        "microdollars": 5, **TOKENS,
    }  # fmt: skip
    state = {"tenant_id": ACME, "agent_id": "a", "checkpoint_type": "full", "state_data": b"s", "metadata": {}}
    async with db.system_write() as connection:
        await connection.execute(
            insert(cost_observations),
            [
                {**cost, "execution_id": began(500), "id": "1", "at_ms": old},
                {**cost, "execution_id": began(1), "id": "1", "at_ms": new},
            ],
        )
        await connection.execute(
            insert(agent_states),
            [
                {**state, "instance": "i", "version": 1, "created_at_ms": old},
                {**state, "instance": "i", "version": 2, "created_at_ms": old},
                {**state, "instance": "j", "version": 1, "created_at_ms": old},
            ],
        )

    plan = await job.run(NOW_MS)

    assert [(removal.kind, removal.items) for removal in plan.removals] == [("agent_state", 1), ("cost", 1)]
    assert (await rows(db, cost_observations), await rows(db, agent_states)) == (1, 2)


async def test_of_every_table_whose_kind_ends_nothing_old_is_left(db: Database, job) -> None:
    """Also of a table that is added later: a kind alone removes nothing, the purge must know the table."""
    newer_state = any_row(agent_states, ACME) | {"version": 2}  # the newest of an agent stays, however old
    owned = [table for table in metadata.sorted_tables if "tenant_id" in table.c or table.name == "tenants"]
    async with db.system_write() as connection:
        for table in owned:
            await connection.execute(insert(table), any_row(table, ACME))
        await connection.execute(insert(agent_states), newer_state)
        made = update(idempotency_keys).values(resource_id=any_row(executions, ACME)["id"])
        await connection.execute(made)

    plan = await job.run(NOW_MS)

    left = {table.name for table in owned if await rows(db, table)}
    ending = {table.name for table in owned if table.info["retention"] in {*DAYS_DEFAULT, Retention.REQUEST}}
    assert left == {table.name for table in owned} - ending | {"agent_states"}
    assert await rows(db, agent_states) == 1
    assert {removal.kind for removal in plan.removals} == set(DAYS_DEFAULT)


async def test_what_is_removed_was_exported_first(db: Database, artifacts: KeptArtifacts, tmp_path: Path) -> None:
    store, epochs = await store_of(db)
    await store.append([run_of(began(40), 40), run_of(began(2), 2)], epochs)
    keeper = open_keeper(f"file://{tmp_path}/exports")

    await RetentionJob(db, artifacts, Rules(), Exports(keeper)).run(NOW_MS)

    lines = exported(tmp_path / "exports" / "acme")
    events = [line["row"] for line in lines if line["table"] == "event_store"]
    assert [(row["execution_id"], row["version"]) for row in events] == [(began(40), 1), (began(40), 2), (began(40), 3)]
    assert {line["table"] for line in lines} == {"event_store", "execution_snapshots", "executions"}


def exported(folder: Path) -> list[dict]:
    lines = []
    for path in sorted(folder.glob("*.jsonl.zst")):
        content = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        lines += [msgspec.json.decode(line) for line in content.splitlines()]
    return lines


async def test_an_export_that_fails_leaves_everything_in_place(db: Database, artifacts: KeptArtifacts) -> None:
    class Full:
        def spool(self):
            raise OSError("no space left")

    store, epochs = await store_of(db)
    await store.append([run_of(began(40), 40)], epochs)

    with pytest.raises(OSError, match="no space"):
        await RetentionJob(db, artifacts, Rules(), Exports(Full())).run(NOW_MS)

    assert (await rows(db, executions), await rows(db, event_store)) == (1, 3)


async def test_artifacts_of_no_execution_go_once_they_are_old_enough(artifacts: KeptArtifacts, job) -> None:
    await artifacts.put(Shelf("acme", "exec_never"), b"left by a killed process")
    (use,) = await artifacts.shelves()

    early = await job.run(use.newest_ms + 1000)
    late = await job.run(use.newest_ms + 2 * DAY_MS)

    assert (early.orphans, late.orphans) == ((), ("acme/exec_never",))
    assert await artifacts.shelves() == []


async def test_what_lies_on_a_snapshots_shelf_outlives_its_execution_and_goes_with_the_snapshot(
    db: Database, job, artifacts: KeptArtifacts
) -> None:
    store, epochs = await store_of(db)
    execution = began(200)
    await store.append([run_of(execution, 200)], epochs)
    held = {}
    for snapshot, days_ago in (("snap_old", 190), ("snap_new", 20)):
        ref = await artifacts.put(Shelf(ACME, snapshot), b"the record")
        held[snapshot] = ref
        row = {"tenant_id": ACME, "id": snapshot, "execution_id": execution, "version": days_ago, "bytes": ref.bytes}
        row |= dict.fromkeys(("workflow_id", "workflow_name", "workflow_version", "status"), "x")
        at_ms = NOW_MS - days_ago * DAY_MS
        async with db.system_write() as connection:
            await connection.execute(insert(snapshots), [{**row, "digest": ref.sha256, "created_at_ms": at_ms}])
    (use, _) = await artifacts.shelves()

    plan = await job.run(NOW_MS)
    later = await job.plan(use.newest_ms + 2 * DAY_MS)  # old enough to be an orphan, by the file system's clock

    gone = {removal.kind: removal.ids for removal in plan.removals}
    assert gone == {Retention.HISTORY: (execution,), Retention.SNAPSHOT: ("snap_old",)}
    assert (await rows(db, executions), await rows(db, snapshots)) == (0, 1)
    assert [use.shelf.owner for use in await artifacts.shelves()] == ["snap_new"]
    assert await artifacts.get(Shelf(ACME, "snap_new"), held["snap_new"]) == b"the record"
    assert later.orphans == ()


async def test_an_execution_that_was_taken_up_again_meanwhile_stays(db: Database, job, monkeypatch) -> None:
    store, epochs = await store_of(db)
    await store.append([run_of(began(40), 40)], epochs)
    plan = await job.plan(NOW_MS)
    async with db.system_write() as connection:
        await connection.execute(text("UPDATE executions SET status = 'running', ended_at_ms = NULL"))

    async def planned(_: int):
        return plan

    monkeypatch.setattr(job, "plan", planned)
    await job.run(NOW_MS)

    assert (await rows(db, executions), await rows(db, event_store)) == (1, 3)


async def test_only_one_replica_runs_it_and_once_a_day(db: Database) -> None:
    assert not await claim(db, NOW_MS)  # first use: due a day later
    assert not await claim(db, NOW_MS + DAY_MS // 2)
    assert [await claim(db, NOW_MS + DAY_MS), await claim(db, NOW_MS + DAY_MS)] == [True, False]


async def test_days_that_are_over_are_dropped_and_the_disk_is_free_at_once(postgres_dsn: str, tmp_path: Path) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        for days_ago in range(40, 45):
            await make_days(db, NOW_MS - days_ago * DAY_MS, ahead=0)
        store, epochs = await store_of(db)
        survivor = began(41.5, 77)
        await store.append([run_of(began(40 + n % 5, n), 40 + n % 5) for n in range(400)], epochs)
        await store.append([run_of(survivor, 41.5, ended=False)], epochs)
        before = set(await parts(db))
        artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")

        plan = await RetentionJob(db, artifacts, Rules(), Exports(None)).run(NOW_MS)

        assert plan.removals[0].items == 400
        assert len(before) > len(await parts(db))
        assert not {part for part in await parts(db) if part.table == "event_store"}
        assert [page async for page in store.open_executions([1])] == [[survivor]]
        assert len(await store.read(ACME, survivor)) == 2
        assert (await rows(db, executions), await rows(db, event_store)) == (1, 2)


async def test_after_a_purge_of_most_days_most_of_the_disk_is_free() -> None:
    """The measurement of bench/subjects/retention.py at a size for every day; the full one has 5 million events.

    The purge is the one of control planes: a process of its own.
    """
    figures = await measured(Console(quiet=True), 20_000, quiet_s=0.5)

    assert figures["freed share"] >= 0.7
    assert figures["start p99 ms, purging"] > 0


async def test_a_sqlite_file_shrinks_when_what_was_in_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")
    async with database(f"sqlite:///{path}") as db:
        await upgrade(db)
        store, epochs = await store_of(db)
        await store.append([run_of(began(40, n), 40) for n in range(1_000)], epochs)
    before = path.stat().st_size
    async with database(f"sqlite:///{path}") as db:
        await RetentionJob(db, artifacts, Rules(), Exports(None)).run(NOW_MS)

    assert path.stat().st_size < before * 0.5


async def test_a_thousand_steps_that_add_ten_kilobytes_each_take_thirty_megabytes_at_most(db: Database) -> None:
    """Full snapshots of the growing state at every step would be about 5 GB."""
    store, epochs = await store_of(db)
    store = SqlEventStore(db)
    execution = began(1)
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "d1")
    start = ExecutionStarted(1, execution, ACME, workflow, {}, TraceId("t"))
    state = evolve(ExecutionState(), start)
    await store.append([NewEvents(execution, ACME, 1, 0, (start,), state)], epochs)
    chance = random.Random(7)
    for number in range(1_000):
        path = StepPath(f"s{number}")
        output = {"text": chance.randbytes(7_500).hex()[:10_000]}
        before = state.version
        moves = (
            StepScheduled(2, path, f"s{number}", 1, AgentName("x"), {}, 500),
            StepSucceeded(3, path, 1, output, WorkerId("w"), 1, 2),
        )
        state = reduce(evolve, moves, state)
        await store.append([NewEvents(execution, ACME, 1, before, moves, state)], epochs)

    assert await store.load(execution) == state
    async with db.system_read() as connection:
        held = await connection.scalar(text(_DISK[db.engine]))
    assert 10_000_000 < held <= 30_000_000


async def test_the_report_counts_bytes_for_each_tenant_workflow_and_kind(
    db: Database, artifacts: KeptArtifacts
) -> None:
    store, epochs = await store_of(db)
    await store.append([run_of(began(1, n), 1, tenant=tenant) for n, tenant in enumerate((ACME, ACME, OTHER))], epochs)
    await artifacts.put(Shelf(ACME, began(1, 0)), b"z" * 5_000)

    report = await storage_report(db, artifacts)

    history = {use.tenant: use for use in report.uses if use.kind == "history"}
    assert set(history) == {ACME, OTHER}
    assert history[ACME].workflow == "support"
    assert history[ACME].bytes == pytest.approx(2 * history[OTHER].bytes, rel=0.02)
    assert 500 < history[OTHER].bytes < 5_000
    kept = next(use for use in report.uses if use.kind == "artifact")
    assert (kept.tenant, kept.workflow, kept.items, kept.bytes) == (ACME, "support", 1, report.artifact_bytes)
    assert report.database_bytes > sum(use.bytes for use in history.values())


def test_every_kind_that_ends_by_age_has_a_length_and_rules_are_checked() -> None:
    endless = {Retention.REQUEST, Retention.REGISTERED, Retention.TENANT, Retention.TRANSIENT, Retention.DEPLOYMENT}
    assert set(DAYS_DEFAULT) | endless == set(Retention)
    for wrong in ("history", "history=7", "history=7w", "nothing=7d", "a b/history=7d", "registered=1d", "history=-1d"):
        with pytest.raises(InvalidRetention):
            parse_rules(wrong)
    assert parse_rules("").days("any", Retention.AUDIT) == 30


async def test_days_of_costs_and_audits_are_dropped_too_and_a_tenant_that_keeps_longer_loses_nothing(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        for days_ago in (500, 40):
            await make_days(db, NOW_MS - days_ago * DAY_MS, ahead=0)
        await make_days(db, NOW_MS, ahead=0)
        of_both = ((ACME, 16), (OTHER, 4))
        async with db.system_write() as connection:
            await connection.execute(
                insert(cost_observations),
                [cost_row(tenant, began(500, number)) for tenant, rows in of_both for number in range(rows)],
            )
            await connection.execute(
                insert(audits),
                [audit_row(tenant, number, 40) for tenant, rows in of_both for number in range(rows)],
            )
        artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")
        rules = parse_rules("other/cost=never, other/audit=90d")
        keeper = open_keeper(f"file://{tmp_path}/exports")

        plan = await RetentionJob(db, artifacts, rules, Exports(keeper)).run(NOW_MS)

        assert [(removal.tenant, removal.kind, removal.items) for removal in plan.removals] == [
            (ACME, "audit", 16),
            (ACME, "cost", 16),
        ]
        for table, days_ago in ((cost_observations, 500), (audits, 40)):
            async with db.system_read() as connection:
                assert set(await connection.scalars(select(table.c.tenant_id))) == {OTHER}
            assert await rows(db, table) == 4
            assert Part(day_of(NOW_MS - days_ago * DAY_MS), table.name) not in await parts(db)
        lines = exported(tmp_path / "exports" / "acme")
        assert {(line["table"], line["row"]["tenant_id"]) for line in lines} == {
            ("audits", ACME),
            ("cost_observations", ACME),
        }


def cost_row(tenant: TenantId, execution: ExecutionId) -> dict:
    return {
        "tenant_id": tenant, "execution_id": execution, "id": tenant, "path": "a", "attempt": 1, "agent": "x",
        "resource": "model", "workflow": "w", "microdollars": 5, **TOKENS, "at_ms": NOW_MS - 500 * DAY_MS,
    }  # fmt: skip


def audit_row(tenant: TenantId, number: int, days_ago: int) -> dict:
    at_ms = NOW_MS - days_ago * DAY_MS
    return {
        "id": f"aud_{encode_ulid((at_ms << 80) | number * 10 + len(tenant))}", "tenant_id": tenant, "seq": number,
        "actor_type": "user", "actor_id": "u", "action": "a", "resource_type": "r", "resource_id": "1",
        "outcome": "done", "record_id": "aud_1", "record": "{}", "prev_hash": b"h", "hash": b"h", "at_ms": at_ms,
    }  # fmt: skip


async def test_a_day_with_much_that_must_stay_is_emptied_of_the_rest_and_stays(
    postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.storage.retention_days.DAY_MOVED_ROWS_MAX", 3)
    async with database(postgres_dsn) as db:
        await upgrade(db)
        await make_days(db, NOW_MS - 40 * DAY_MS, ahead=0)
        store, epochs = await store_of(db)
        await store.append([run_of(began(40, n), 40, ended=n >= 2) for n in range(10)], epochs)
        artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")

        await RetentionJob(db, artifacts, Rules(), Exports(None)).run(NOW_MS)

        day = Part(day_of(NOW_MS - 40 * DAY_MS), "event_store")
        assert day in await parts(db)
        assert [page async for page in store.open_executions([1])] == [[began(40, 0), began(40, 1)]]
        assert (await rows(db, executions), await rows(db, event_store)) == (2, 4)


async def test_work_on_other_days_goes_on_while_a_day_is_emptied(postgres_dsn: str) -> None:
    """Neither an append nor a purge of one day waits for who uses another."""
    async with database(postgres_dsn) as db:
        await upgrade(db)
        for days_ago in (40, 0):
            await make_days(db, NOW_MS - days_ago * DAY_MS, ahead=0)
        store, epochs = await store_of(db)
        await store.append([run_of(began(40), 40)], epochs)
        old = Part(day_of(NOW_MS - 40 * DAY_MS), "event_store")

        async with db.owning() as connection:
            await connection.exec_driver_sql(f"LOCK TABLE {old.name} IN ACCESS EXCLUSIVE MODE")
            async with asyncio.timeout(5):
                await store.append([run_of(began(0), 0)], epochs)

        async with db.owning() as connection:
            today = Part(day_of(NOW_MS), "event_store")
            await connection.exec_driver_sql(f"LOCK TABLE {today.name} IN ROW EXCLUSIVE MODE")
            async with database(postgres_dsn) as other:
                assert await day_drops.empty_day(other, [old]) == 0
        assert len(await store.read(ACME, began(40))) == 0
        assert len(await store.read(ACME, began(0))) == 3


async def test_a_purge_refreshes_what_the_planner_knows_of_divided_tables_as_a_whole(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        store, epochs = await store_of(db)
        await store.append([run_of(began(1), 1)], epochs)
        artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")

        await RetentionJob(db, artifacts, Rules(), Exports(None)).run(NOW_MS)

        async with db.owning() as connection:
            known = await connection.scalars(text("SELECT DISTINCT tablename FROM pg_stats WHERE inherited"))
            assert {"executions", "event_store"} <= set(known)
