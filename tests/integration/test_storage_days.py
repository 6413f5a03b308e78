"""Tables that grow are divided into days: rows find theirs, unique keys hold over all, and a day can be dropped."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError

from agentflow.errors import AgentFlowError
from agentflow.ids import UlidSource
from agentflow.ports import StorageUnavailable
from control_plane.storage.database import Database, database
from control_plane.storage.day_drops import drop_emptied, empty_day, still_needed
from control_plane.storage.days import Part, bounds, day_of, divided_tables, make_days, parts, run, wait_briefly
from control_plane.storage.migrate import upgrade
from control_plane.storage.retention_days import few_at_once
from control_plane.storage.tables import event_store, executions

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS + 12 * 3_600_000
TODAY = day_of(NOW_MS)


def execution_id(at_ms: int) -> str:
    return UlidSource(lambda: at_ms).execution()


def event(execution: str, version: int) -> dict[str, Any]:
    return {
        "tenant_id": "acme",
        "execution_id": execution,
        "version": version,
        "event_type": "e",
        "event_data": "{}",
        "created_at_ms": NOW_MS,
        "epoch": 1,
    }


def listed(execution: str, ended_at_ms: int | None) -> dict[str, Any]:
    return {
        "id": execution,
        "tenant_id": "acme",
        "workflow_id": "wf",
        "workflow_name": "w",
        "workflow_version": "1",
        "status": "running" if ended_at_ms is None else "completed",
        "shard": 0,
        "trace_id": "t",
        "started_at_ms": 1,
        "ended_at_ms": ended_at_ms,
    }


async def store(db: Database, execution: str, *, ended_at_ms: int | None = None, events: int = 3) -> None:
    async with db.system_write() as connection:
        await connection.execute(insert(executions), listed(execution, ended_at_ms))
        for version in range(1, events + 1):
            await connection.execute(insert(event_store), event(execution, version))


async def where(db: Database, execution: str) -> set[str]:
    """The parts that hold the execution's events."""
    async with db.system_read() as connection:
        query = "SELECT DISTINCT tableoid::regclass::text FROM event_store WHERE execution_id = :id"
        return set(await connection.scalars(text(query), {"id": execution}))


async def history(db: Database) -> list[Any]:
    columns = (event_store.c.position, event_store.c.execution_id, event_store.c.version)
    async with db.system_read() as connection:
        return [tuple(row) for row in await connection.execute(select(*columns).order_by(event_store.c.position))]


@pytest.fixture
async def db(postgres_dsn: str) -> AsyncIterator[Database]:
    async with database(postgres_dsn) as opened:
        await upgrade(opened)
        yield opened


def test_the_bounds_of_a_day_hold_every_id_made_in_it_and_no_other() -> None:
    first, after = bounds("event_store", TODAY)
    midnight = 20_000 * DAY_MS

    assert first <= execution_id(midnight) < after
    assert first <= execution_id(midnight + DAY_MS - 1) < after
    assert execution_id(midnight - 1) < first
    assert execution_id(midnight + DAY_MS) >= after
    assert bounds("audits", TODAY)[0].startswith("aud_")


async def test_days_are_made_once_for_every_divided_table(db: Database) -> None:
    assert await parts(db) == []

    assert await make_days(db, NOW_MS, ahead=1) == 2 * len(divided_tables())
    assert await make_days(db, NOW_MS, ahead=1) == 0

    made = await parts(db)
    assert {part.day for part in made} == {TODAY, TODAY + timedelta(days=1)}
    assert {part.table for part in made} >= {"event_store", "executions", "execution_snapshots", "audits"}


async def test_sqlite_has_no_days(tmp_path: Any) -> None:
    async with database(f"sqlite:///{tmp_path}/a.db") as db:
        await upgrade(db)

        assert await make_days(db, NOW_MS) == 0
        assert await parts(db) == []


async def test_what_came_before_its_day_was_made_is_moved_into_it_and_keeps_its_position(db: Database) -> None:
    early = execution_id(NOW_MS)
    await store(db, early)
    assert await where(db, early) == {"event_store_default"}
    before = await history(db)

    await make_days(db, NOW_MS, ahead=0)

    assert await where(db, early) == {Part(TODAY, "event_store").name}
    assert await history(db) == before


async def test_a_version_can_be_written_once_whatever_part_it_lies_in(db: Database) -> None:
    await make_days(db, NOW_MS, ahead=0)
    for execution in (execution_id(NOW_MS), "exec_of_another_kind"):
        await store(db, execution)
        with pytest.raises(AgentFlowError) as refused:
            async with db.system_write() as connection:
                await connection.execute(insert(event_store), event(execution, 2))
        assert isinstance(refused.value.__cause__, IntegrityError)


async def test_dropping_a_day_keeps_what_is_open_or_ended_lately_whole_and_in_place(db: Database) -> None:
    await make_days(db, NOW_MS, ahead=0)
    done, late, still_open = (execution_id(NOW_MS + number) for number in range(3))
    await store(db, done, ended_at_ms=NOW_MS + 10)
    await store(db, late, ended_at_ms=NOW_MS + 90)
    await store(db, still_open)
    before = await history(db)
    of_today = [part for part in await parts(db) if part.table != "audits"]

    kept = await empty_day(db, of_today, keep=still_needed(NOW_MS + 50))
    await drop_emptied(db, of_today)

    assert kept == 2 * (1 + 3)
    assert await history(db) == [row for row in before if row[1] != done]
    assert await where(db, still_open) == {"event_store_default"}
    async with db.system_read() as connection:
        assert sorted(await connection.scalars(select(executions.c.id))) == sorted([late, still_open])
    assert [part.table for part in await parts(db)] == ["audits"]
    # Whoever survived goes on, and its day can be made anew around it.
    async with db.system_write() as connection:
        await connection.execute(insert(event_store), event(still_open, 4))
    await make_days(db, NOW_MS, ahead=0)
    assert await where(db, still_open) == {Part(TODAY, "event_store").name}
    assert len(await history(db)) == 7


async def test_dropping_gives_way_to_who_is_reading_and_leaves_everything_as_it_was(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.storage.days.DAYS_LOCK_WAIT_S", 0.05)
    await make_days(db, NOW_MS, ahead=0)
    execution = execution_id(NOW_MS)
    await store(db, execution)
    part = Part(TODAY, "event_store")

    async with db.system_read() as reader:
        await reader.execute(select(event_store))
        with pytest.raises(AgentFlowError, match="lock timeout"):
            await empty_day(db, [part])
        with pytest.raises(AgentFlowError, match="lock timeout"):
            await drop_emptied(db, [part])

    assert len(await history(db)) == 3
    assert part in await parts(db)


async def test_who_stands_still_with_a_table_locked_is_ended_by_the_server(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen or cut off in the middle of a drop: work goes on after a moment, and nothing was dropped."""
    monkeypatch.setattr("control_plane.storage.days.DATABASE_IDLE_S", 0.2)
    await make_days(db, NOW_MS, ahead=0)
    before = await parts(db)

    async def dropped_by_someone_who_freezes() -> None:
        async with db.owning() as frozen:
            await wait_briefly(frozen)
            await run(frozen, "LOCK TABLE ONLY event_store IN ACCESS EXCLUSIVE MODE")
            await run(frozen, f"DROP TABLE {Part(TODAY, 'event_store').name}")
            async with asyncio.timeout(10):
                await store(db, execution_id(NOW_MS))

    with pytest.raises(StorageUnavailable):
        await dropped_by_someone_who_freezes()
    assert await parts(db) == before
    assert len(await history(db)) == 3


async def test_an_owner_without_special_rights_makes_and_drops_days_too(postgres_dsn: str) -> None:
    """The owner is bound by row-level security and sees no row: what must be kept is found all the same."""
    name = postgres_dsn.rpartition("/")[2]
    owner = f"owner_{name}"
    async with database(postgres_dsn) as db, db.owning() as connection:
        await connection.execute(text(f"CREATE ROLE {owner} LOGIN CREATEROLE"))
        await connection.execute(text(f"GRANT ALL ON DATABASE {name} TO {owner}"))
        await connection.execute(text(f"GRANT ALL ON SCHEMA public TO {owner}"))
    async with database(postgres_dsn) as first:
        await upgrade(first)  # where the roles are not there yet, this makes them
    async with database(postgres_dsn) as db, db.owning() as connection:
        await connection.execute(text(f"GRANT agentflow_tenant, agentflow_system TO {owner}"))
        for table in await connection.scalars(
            text("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')")
        ):
            await connection.execute(text(f"ALTER TABLE {table} OWNER TO {owner}"))

    async with database(postgres_dsn.replace("agentflow@", f"{owner}@")) as db:
        execution = execution_id(NOW_MS)
        await store(db, execution)
        await make_days(db, NOW_MS, ahead=0)
        assert await where(db, execution) == {Part(TODAY, "event_store").name}
        of_today = [part for part in await parts(db) if part.table != "audits"]

        assert await empty_day(db, of_today, keep=still_needed(NOW_MS)) == 4
        await drop_emptied(db, of_today)

        assert len(await history(db)) == 3


def test_a_part_is_named_for_its_table_and_day() -> None:
    assert Part(date(2026, 11, 18), "event_store").name == "event_store_20261118"


def test_emptied_days_go_together_but_never_many_nor_with_many_rows_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.storage.retention_days.DAYS_DROPPED_TOGETHER", 2)
    monkeypatch.setattr("control_plane.storage.retention_days.DAY_MOVED_ROWS_MAX", 10)
    days = [[Part(date(2026, 11, number), "event_store")] for number in range(1, 6)]

    together = list(few_at_once(zip([0, 0, 6, 6, 4], days, strict=True)))

    assert [[part.day.day for part in parts] for parts in together] == [[1, 2], [3], [4, 5]]
