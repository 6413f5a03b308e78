"""Records become links of one chain for each tenant, whatever dies and however many do it at once (F-16)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import delete, func, insert, select, update

from agentflow.clock import SystemClock
from agentflow.contracts.audit import Actor, AuditEntry, AuditRecord, Resource, chain_faults, entry_of
from agentflow.ids import TenantId, UlidSource
from agentflow.ports import StorageUnavailable
from agentflow.testing import eventually
from control_plane.audit.log import AuditFilter
from control_plane.audit.notes import Note, concerning, due, noting
from control_plane.audit.sequencer import Sequencer
from control_plane.audit.trail import Trail
from control_plane.storage.audit import SqlAudit
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import upgrade
from control_plane.storage.tables import audit_pending, audits, schedules

ACME, OTHER = TenantId("acme"), TenantId("other")
EVERYTHING = AuditFilter()
IDS = UlidSource(SystemClock().now_ms)


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
def store(db: Database) -> SqlAudit:
    return SqlAudit(db, SystemClock())


def entry(tenant: TenantId = ACME, action: str = "executions.cancel", actor: str = "usr_1") -> AuditEntry:
    record = AuditRecord(
        id=f"aud_{IDS.ulid()}",
        tenant=tenant,
        at_ms=SystemClock().now_ms(),
        actor=Actor("person", actor),
        action=action,
        resource=Resource("execution", "exec_1"),
        outcome="done",
    )
    return entry_of(record)


async def chain_of(store: SqlAudit, tenant: TenantId = ACME) -> list[str]:
    """The ids of a tenant's records in their order, after proving that the chain is whole."""
    links = await store.page(tenant, EVERYTHING, limit=10_000, after=None, newest_first=False)
    assert [link.seq for link in links] == list(range(1, len(links) + 1))
    assert list(chain_faults(links)) == []
    return [link.record["id"] for link in links]


async def test_every_record_gets_one_place_in_the_chain_of_its_tenant(store: SqlAudit) -> None:
    ours, theirs = [entry() for _ in range(25)], [entry(OTHER) for _ in range(3)]
    await store.add([*ours, *theirs])

    assert sorted(await store.waiting()) == [ACME, OTHER]
    assert [await store.chain(ACME, limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert await store.chain(OTHER, limit=10) == 3

    assert await chain_of(store) == [each.id for each in ours]
    assert await chain_of(store, OTHER) == [each.id for each in theirs]
    assert await store.waiting() == []
    assert (await store.head(ACME))[0] == 25


async def test_a_record_that_is_told_again_is_chained_once(store: SqlAudit) -> None:
    told = [entry(), entry()]
    await store.add(told)
    await store.add(told)
    await store.chain(ACME, limit=10)
    await store.add([*told, entry()])

    assert await store.chain(ACME, limit=10) == 3
    assert len(await chain_of(store)) == 3


async def test_two_sequencers_at_once_make_no_gap_and_no_fork(database_dsn: str, db: Database) -> None:
    async with AsyncExitStack() as stack:
        both = [SqlAudit(db, SystemClock())]
        both.append(SqlAudit(await stack.enter_async_context(database(database_dsn)), SystemClock()))
        written: list[str] = []

        async def write() -> None:
            for _ in range(30):
                batch = [entry() for _ in range(7)]
                await both[0].add(batch)
                written.extend(each.id for each in batch)

        async def chain(store: SqlAudit, writing: asyncio.Task[None]) -> None:
            while not writing.done() or await store.waiting():
                await store.chain(ACME, limit=5)

        writing = asyncio.create_task(write())
        await asyncio.gather(writing, *(chain(store, writing) for store in both for _ in range(2)))

        assert sorted(await chain_of(both[0])) == sorted(written)


async def test_a_sequencer_that_dies_in_the_middle_of_a_batch_has_done_nothing(
    store: SqlAudit, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([entry() for _ in range(10)])
    await store.chain(ACME, limit=4)

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    # After the links are written and before the head has moved on.
    monkeypatch.setattr("control_plane.storage.audit.update", dies)
    with pytest.raises(Killed):
        await store.chain(ACME, limit=4)
    monkeypatch.undo()

    assert len(await chain_of(store)) == 4
    while await store.chain(ACME, limit=4):
        pass
    assert len(await chain_of(store)) == 10


async def test_a_running_sequencer_chains_what_it_hears_of_and_what_was_left_behind(store: SqlAudit) -> None:
    clock = SystemClock()
    left, heard = entry(OTHER), entry()
    await store.add([left])  # by somebody who died before saying so
    sequencer = Sequencer(store, clock)
    trail = Trail(store, clock=clock, new_id=IDS.ulid, wake=sequencer.wake)
    async with sequencer.running():
        await eventually(lambda: store.head(OTHER), within_s=5)
        await trail.keep(heard)
        sequencer.wake(ACME)

        async def chained() -> bool:
            return await chain_of(store) == [heard.id] and await chain_of(store, OTHER) == [left.id]

        await eventually(chained)


async def test_records_are_found_by_who_what_when_and_to_what(store: SqlAudit) -> None:
    await store.add([entry(), entry(action="workflows.execute"), entry(actor="usr_2")])
    await store.chain(ACME, limit=10)
    now = SystemClock().now_ms()

    for wanted, count in (
        (EVERYTHING, 3),
        (AuditFilter(actor="usr_2"), 1),
        (AuditFilter(action="workflows.execute"), 1),
        (AuditFilter(resource="exec_1", resource_type="execution"), 3),
        (AuditFilter(resource="exec_2"), 0),
        (AuditFilter(outcomes=("denied",)), 0),
        (AuditFilter(since_ms=now - 60_000, until_ms=now + 1), 3),
        (AuditFilter(since_ms=now + 60_000), 0),
        (AuditFilter(until_ms=now - 60_000), 0),
    ):
        page = await store.page(ACME, wanted, limit=10, after=None, newest_first=True)
        assert (len(page), await store.count(ACME, wanted)) == (count, count), wanted
    newest = await store.page(ACME, EVERYTHING, limit=2, after=None, newest_first=True)
    rest = await store.page(ACME, EVERYTHING, limit=2, after=newest[-1].seq, newest_first=True)
    assert [link.seq for link in (*newest, *rest)] == [3, 2, 1]
    assert await store.page(OTHER, EVERYTHING, limit=10, after=None, newest_first=True) == []


def schedule_row(name: str) -> dict[str, object]:
    given = {"tenant_id": ACME, "id": f"sch_{name}", "name": name}
    return {column.name: given.get(column.name, _some(column)) for column in schedules.c}


def _some(column: object) -> object:
    kind = column.type.python_type  # type: ignore[attr-defined]
    return None if column.nullable else {int: 0, str: "x", dict: {}}.get(kind, 0)  # type: ignore[attr-defined]


def note() -> Note:
    return Note(
        id=f"aud_{IDS.ulid()}",
        tenant=ACME,
        actor=Actor("person", "usr_1"),
        action="schedules.create",
        resource=Resource("schedule", ""),
        at_ms=1,
        details={},
    )


async def pending(db: Database) -> int:
    async with db.system_read() as connection:
        return await connection.scalar(select(func.count()).select_from(audit_pending)) or 0


async def fail_half_way(db: Database) -> None:
    async with db.write(ACME) as connection:
        await connection.execute(insert(schedules), schedule_row("daily"))
        raise StorageUnavailable("the power is gone")


async def test_a_note_is_committed_with_what_it_tells_of_or_not_at_all(db: Database) -> None:
    kept, lost = note(), note()
    with noting(kept):
        concerning("schedule", "nightly", workflow="report")
        async with db.write(ACME) as connection:
            await connection.execute(insert(schedules), schedule_row("nightly"))
            assert not kept.written
        assert kept.written
        async with db.write(ACME) as connection:  # one request, one record
            await connection.execute(insert(schedules), schedule_row("hourly"))
    with noting(lost), pytest.raises(StorageUnavailable):
        await fail_half_way(db)

    assert await pending(db) == 1
    assert not lost.written
    assert '"resource":{"id":"nightly","type":"schedule"}' in kept.entry().record


async def test_a_transaction_that_changes_nothing_takes_no_note_along(db: Database) -> None:
    unchanged = note()
    with noting(unchanged):
        async with db.write(ACME) as connection:
            await connection.execute(delete(schedules).where(schedules.c.name == "nobody's"))
            await connection.execute(update(schedules).where(schedules.c.name == "nobody's").values(name="x"))
    async with db.write(ACME) as connection:  # after its request nobody writes a note any more
        await connection.execute(insert(schedules), schedule_row("later"))

    assert not unchanged.written
    assert due() is None
    assert await pending(db) == 0


async def test_links_cannot_be_changed_with_the_rights_that_add_them(postgres_dsn: str) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        store = SqlAudit(db, SystemClock())
        await store.add([entry()])
        await store.chain(ACME, limit=1)

        with pytest.raises(StorageUnavailable):
            async with db.system_write() as connection:
                await connection.execute(update(audits).values(action="nothing"))
        for statement in (update(audits).values(action="nothing"), delete(audits), delete(audit_pending)):
            with pytest.raises(StorageUnavailable):
                async with db.write(ACME) as connection:
                    await connection.execute(statement)
        assert len(await chain_of(store)) == 1
