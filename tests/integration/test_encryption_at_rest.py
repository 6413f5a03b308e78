"""What people send is not readable in the database or the artifact store, is sealed to its place, can be rekeyed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Text, cast, select, text, update

from agentflow.artifacts.opening import open_artifacts
from agentflow.encryption.field import SealBroken
from agentflow.encryption.keyring import InvalidKeys, KeyRing, UnknownKey
from agentflow.execution.events import ExecutionStarted, StepScheduled, StepSucceeded, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.ports import NewEvents, Shelf
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.rekey import Rekeyed, rekey
from control_plane.storage.sealing import SEALED_FIELDS, FieldSeal
from control_plane.storage.stream import SqlEventStream
from control_plane.storage.tables import event_store, execution_snapshots, metadata

CANARY = "canary-7f3a91"
OLD, NEW = ("k1", bytes(range(32))), ("k2", bytes(range(1, 33)))
TENANT, OTHER = TenantId("acme"), TenantId("other")


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


def sealing(*keys: tuple[str, bytes]) -> FieldSeal:
    return FieldSeal(KeyRing(keys) if keys else None)


async def written(db: Database, seal: FieldSeal, execution: str, tenant: TenantId = TENANT) -> ExecutionState:
    """Three events with the canary in each, and a snapshot after the second."""
    store = SqlEventStore(db, snapshot_every=2, seal=seal)
    epochs = await SqlShardLeases(db).acquire(range(4), "writer", lease_s=60)
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "d1")
    state = ExecutionState()
    name = ExecutionId(execution)
    for event in (
        ExecutionStarted(1, name, tenant, workflow, {"secret": CANARY}, TraceId("t")),
        StepScheduled(2, StepPath("a"), "a", 1, AgentName("x"), {"secret": CANARY}, 500),
        StepSucceeded(3, StepPath("a"), 1, {"secret": CANARY}, WorkerId("w"), 1, 2),
    ):
        before, state = state, evolve(state, event)
        await store.append([NewEvents(name, tenant, 1, before.version, (event,), state)], epochs)
    return state


async def stored_rows(db: Database) -> bytes:
    async with db.system_read() as connection:
        events = await connection.scalars(select(cast(event_store.c.event_data, Text)))
        return "".join(events).encode() + b"".join(await connection.scalars(select(execution_snapshots.c.state)))


def sqlite_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*.db*"))


async def test_nothing_people_sent_can_be_read_from_the_database(db: Database, tmp_path: Path) -> None:
    state = await written(db, sealing(OLD), "exec_1")

    raw = await stored_rows(db) + sqlite_files(tmp_path)

    assert CANARY.encode() not in raw
    assert b"af1:k1:" in raw
    store = SqlEventStore(db, seal=sealing(OLD))
    assert await store.load(ExecutionId("exec_1")) == state
    assert [event.version for event in await store.read(TENANT, ExecutionId("exec_1"))] == [1, 2, 3]
    page = await SqlEventStream(db, seal=sealing(OLD)).page(limit=10)
    assert [event.event.at_ms for event in page.events] == [1, 2, 3]


async def test_without_keys_it_can_which_is_what_the_test_above_must_notice(db: Database) -> None:
    await written(db, sealing(), "exec_1")

    async with db.system_read() as connection:
        stored = "".join(await connection.scalars(select(cast(event_store.c.event_data, Text))))
    assert stored.count(CANARY) == 3


async def test_a_field_swapped_between_rows_or_tenants_does_not_open(db: Database) -> None:
    await written(db, sealing(OLD), "exec_1")
    await written(db, sealing(OLD), "exec_2", OTHER)
    copy = text(
        "UPDATE event_store SET event_data = (SELECT event_data FROM event_store WHERE execution_id = 'exec_2'"
        " AND version = 1) WHERE execution_id = 'exec_1' AND version = 1"
    )
    async with db.system_write() as connection:
        await connection.execute(copy)

    with pytest.raises(SealBroken, match="exec_1/1"):
        await SqlEventStore(db, seal=sealing(OLD)).read(TENANT, ExecutionId("exec_1"))
    assert len(await SqlEventStore(db, seal=sealing(OLD)).read(OTHER, ExecutionId("exec_2"))) == 3


async def test_without_its_key_it_stays_closed_and_the_key_is_named(db: Database) -> None:
    await written(db, sealing(OLD), "exec_1")

    for seal in (sealing(NEW), sealing()):
        with pytest.raises(UnknownKey, match="'k1'"):
            await SqlEventStore(db, seal=seal).load(ExecutionId("exec_1"))


async def test_rekeying_seals_what_was_open_and_what_was_under_the_old_key(db: Database, tmp_path: Path) -> None:
    plain = await written(db, sealing(), "exec_1")
    sealed = await written(db, sealing(OLD), "exec_2", OTHER)
    artifacts = await open_artifacts(f"file://{tmp_path}/artifacts", KeyRing([NEW, OLD]))
    old_artifacts = await open_artifacts(f"file://{tmp_path}/artifacts", KeyRing([OLD]))
    ref = await old_artifacts.put(Shelf("other", "exec_2"), CANARY.encode() * 1000)
    steps: list[tuple[str, int]] = []

    done = await rekey(db, sealing(NEW, OLD), artifacts, lambda kind, count: steps.append((kind, count)))

    assert done == Rekeyed("k2", events=6, snapshots=2, artifacts=1)
    assert ("events", 6) in steps
    assert CANARY.encode() not in b"".join(
        [await stored_rows(db), *(path.read_bytes() for path in (tmp_path / "artifacts").rglob("*.zst"))]
    )
    only_new = SqlEventStore(db, seal=sealing(NEW))
    assert await only_new.load(ExecutionId("exec_1")) == plain
    assert await only_new.load(ExecutionId("exec_2")) == sealed
    assert await artifacts.get(Shelf("other", "exec_2"), ref) == CANARY.encode() * 1000
    assert await rekey(db, sealing(NEW), artifacts, lambda *_: None) == Rekeyed("k2")


async def test_a_rekeying_that_was_killed_is_taken_up_where_it_was(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.storage.rekey._BATCH", 2)
    states = [await written(db, sealing(OLD), f"exec_{number}") for number in range(4)]
    artifacts = await open_artifacts(f"file://{tmp_path}/artifacts", KeyRing([NEW, OLD]))

    def killed(kind: str, count: int) -> None:
        if count >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rekey(db, sealing(NEW, OLD), artifacts, killed)
    both = SqlEventStore(db, seal=sealing(NEW, OLD))
    assert [await both.load(ExecutionId(f"exec_{number}")) for number in range(4)] == states

    done = await rekey(db, sealing(NEW, OLD), artifacts, lambda *_: None)

    assert (done.events, done.snapshots) == (6, 4)
    assert await SqlEventStore(db, seal=sealing(NEW)).load(ExecutionId("exec_3")) == states[3]


async def test_a_snapshot_written_while_rekeying_is_not_overwritten(db: Database, tmp_path: Path) -> None:
    await written(db, sealing(OLD), "exec_1")
    artifacts = await open_artifacts(f"file://{tmp_path}/artifacts", KeyRing([NEW]))
    async with db.system_write() as connection:
        await connection.execute(update(execution_snapshots).values(version=99, state=b"af1:k2:newer"))

    done = await rekey(db, sealing(NEW, OLD), artifacts, lambda *_: None)

    assert (done.events, done.snapshots) == (3, 0)


async def test_rekeying_without_keys_is_refused(db: Database, tmp_path: Path) -> None:
    artifacts = await open_artifacts(f"file://{tmp_path}/artifacts")

    with pytest.raises(InvalidKeys, match="there is none"):
        await rekey(db, sealing(), artifacts, lambda *_: None)


def test_every_column_marked_as_sensitive_is_sealed() -> None:
    marked = {
        f"{table.name}.{column.name}"
        for table in metadata.tables.values()
        for column in table.columns
        if column.info.get("sensitive")
    }

    assert marked == set(SEALED_FIELDS)
