"""How much a tenant stores is counted beside the work: the same as the report, after a purge too, by one at a time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from agentflow.artifacts.opening import open_artifacts
from agentflow.artifacts.store import KeptArtifacts
from agentflow.clock import SystemClock
from agentflow.ids import TenantId
from agentflow.limits import STORAGE_COUNT_REST
from agentflow.ports import ArtifactsUnavailable, Shelf
from agentflow.testing import eventually
from control_plane.storage.database import Database, database
from control_plane.storage.exports import Exports
from control_plane.storage.migrate import upgrade
from control_plane.storage.retention import RetentionJob
from control_plane.storage.retention_rules import Rules
from control_plane.storage.storage_counts import StorageCounts
from control_plane.storage.tables import cost_observations, event_store, executions, metadata, storage_use
from control_plane.storage.tenants import SqlTenants
from control_plane.storage.usage import COUNTED, storage_report
from tests.rows import any_row

ACME, OTHER = TenantId("acme"), TenantId("other")
BOTH = (ACME, OTHER)


class Sleepless(SystemClock):
    """Remembers how long it should have slept, and lets others have a turn."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
async def artifacts(tmp_path: Path) -> KeptArtifacts:
    return await open_artifacts(f"file://{tmp_path}/artifacts")


async def fill(db: Database, artifacts: KeptArtifacts) -> None:
    """A row of each tenant in every table, thousands of bytes in some, and artifacts."""
    async with db.system_write() as connection:
        for table in metadata.sorted_tables:
            if table is not storage_use and (table.name == "tenants" or "tenant_id" in table.c):
                await connection.execute(insert(table), [any_row(table, tenant) for tenant in BOTH])
        for number in range(2, 9):
            tenant = BOTH[number % 2]
            event = any_row(event_store, tenant) | {"version": number, "event_data": '"' + "é" * 100 * number + '"'}
            await connection.execute(insert(event_store), event)
            cost = any_row(cost_observations, tenant) | {"execution_id": f"exec_{number // 2}", "id": f"c{number}"}
            await connection.execute(insert(cost_observations), cost)
    await artifacts.put(Shelf(ACME, "exec_1"), b"large" * 1000)
    await artifacts.put(Shelf(OTHER, "exec_2"), b"x")


async def reported(db: Database, artifacts: KeptArtifacts) -> dict[str, int]:
    found: Counter[str] = Counter()
    for use in (await storage_report(db, artifacts)).uses:
        found[use.tenant] += use.bytes
    return dict(found)


async def kept(db: Database) -> dict[str, int]:
    return {tenant: await SqlTenants(db).storage_bytes(tenant) for tenant in BOTH}


@pytest.mark.parametrize("page", [1, 3, 1_000])
async def test_each_tenant_has_what_the_report_says_whatever_the_size_of_a_page(
    db: Database, artifacts: KeptArtifacts, page: int
) -> None:
    await fill(db, artifacts)

    await StorageCounts(db, artifacts, Sleepless(), page=page).count()

    assert await kept(db) == await reported(db, artifacts)
    assert await SqlTenants(db).storage_bytes(ACME) > 1_000
    assert len(COUNTED) == sum("tenant_id" in table.c for table in metadata.sorted_tables) - 1


async def test_what_a_purge_or_anybody_removed_is_not_found_by_the_next_count(
    db: Database, artifacts: KeptArtifacts
) -> None:
    await fill(db, artifacts)
    counts = StorageCounts(db, artifacts, Sleepless(), page=2)
    await counts.count()
    before = await kept(db)

    await RetentionJob(db, artifacts, Rules(), Exports(None)).run(SystemClock().now_ms())
    async with db.system_write() as connection:
        await connection.execute(delete(event_store).where(event_store.c.tenant_id == ACME))
    await counts.count()

    after = await kept(db)
    assert after == await reported(db, artifacts)
    assert all(after[tenant] < before[tenant] for tenant in BOTH)


async def test_a_tenant_of_which_nothing_is_left_stores_nothing(db: Database, artifacts: KeptArtifacts) -> None:
    async with db.system_write() as connection:
        await connection.execute(insert(executions), [any_row(executions, tenant) for tenant in BOTH])
    counts = StorageCounts(db, artifacts, Sleepless())
    await counts.count()

    async with db.system_write() as connection:
        await connection.execute(delete(executions).where(executions.c.tenant_id == ACME))
    await counts.count()

    assert (await kept(db))[ACME] == 0
    assert (await kept(db))[OTHER] > 0


async def test_the_first_count_is_made_at_once_and_later_ones_rest_fifty_times_as_long_as_they_work(
    db: Database, artifacts: KeptArtifacts
) -> None:
    await fill(db, artifacts)
    clock = Sleepless()
    counts = StorageCounts(db, artifacts, clock, page=2)
    await counts.count()
    assert sum(clock.slept) == 0

    began_s = clock.monotonic_s()
    await counts.count()
    took_s = clock.monotonic_s() - began_s
    assert 0.3 * took_s * STORAGE_COUNT_REST < sum(clock.slept) <= took_s * STORAGE_COUNT_REST


async def test_only_whose_turn_it_is_counts_and_another_goes_on_from_what_is_kept(
    db: Database, artifacts: KeptArtifacts
) -> None:
    await fill(db, artifacts)
    ours = {"first": False, "second": False}
    idle, taking_over = Sleepless(), Sleepless()
    async with (
        StorageCounts(db, artifacts, idle).counting(lambda _: ours["first"]),
        StorageCounts(db, artifacts, taking_over).counting(lambda _: ours["second"]),
    ):
        await eventually(lambda: len(idle.slept) > 5 and len(taking_over.slept) > 5)
        assert await kept(db) == {ACME: 0, OTHER: 0}

        ours["first"] = True
        await eventually(lambda: _agree(db, artifacts))
        ours.update(first=False, second=True)
        async with db.system_write() as connection:
            await connection.execute(insert(executions), any_row(executions, ACME) | {"id": "exec_9"})
        await eventually(lambda: _agree(db, artifacts))


async def test_two_that_count_at_once_keep_the_same(db: Database, artifacts: KeptArtifacts) -> None:
    await fill(db, artifacts)

    await asyncio.gather(*(StorageCounts(db, artifacts, Sleepless(), page=2).count() for _ in range(3)))

    assert await kept(db) == await reported(db, artifacts)


async def test_an_artifact_store_that_is_away_leaves_what_was_counted_and_is_asked_again(
    db: Database, artifacts: KeptArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(db, artifacts)
    clock = Sleepless()
    counts = StorageCounts(db, artifacts, clock)
    await counts.count()
    before = await kept(db)

    with monkeypatch.context() as broken:

        async def away(*_: object) -> object:
            raise ArtifactsUnavailable("gone")

        broken.setattr(artifacts, "shelves", away)
        async with counts.counting(lambda _: True):
            await eventually(lambda: len(clock.slept) > 8)
            assert await kept(db) == before
            broken.undo()
            await artifacts.put(Shelf(ACME, "exec_9"), b"more")
            await eventually(lambda: _agree(db, artifacts))


async def _agree(db: Database, artifacts: KeptArtifacts) -> bool:
    return await kept(db) == await reported(db, artifacts)
