"""Taking snapshots over real databases and a real artifact store, on both engines: each once, whole, and the same."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path

import pytest
from sqlalchemy import delete

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.opening import open_artifacts
from agentflow.artifacts.store import KeptArtifacts
from agentflow.clock import SystemClock
from agentflow.contracts import snapshot as content
from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.snapshot import faults, read_line
from agentflow.contracts.usage import Usage
from agentflow.encryption.keyring import parse_keys
from agentflow.execution.events import (
    ExecutionCompleted,
    ExecutionMoved,
    ExecutionStarted,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
    encode,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, decode_state
from agentflow.ids import AgentName, StepPath, TenantId, TraceId, UlidSource, WorkerId
from agentflow.ports import ArtifactsUnavailable, NewEvents, Observation, Shelf
from control_plane.registry.workflows import WorkflowRegistry
from control_plane.snapshots.ended import SnapshotsOfEnded
from control_plane.snapshots.snapshot import HistoryGone, SnapshotFilter, SnapshotPlace
from control_plane.snapshots.taking import Taking
from control_plane.storage.database import Database, database
from control_plane.storage.ended import SqlEndings
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.exports import Exports
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.retention import RetentionJob
from control_plane.storage.retention_rules import parse_rules
from control_plane.storage.sealing import FieldSeal
from control_plane.storage.snapshots import SqlSnapshots
from control_plane.storage.tables import event_store
from control_plane.storage.usage import storage_report
from control_plane.storage.workflows import SqlWorkflows

ACME, OTHER = TenantId("acme"), TenantId("other")
RING = parse_keys("k1:" + "A" * 43 + "=")
DEFINITION = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: kept, version: VERSION}
spec: {planner: fsm, fsm: {initial_state: a, final_states: [a], states: {a: {agent: clerk}}}}
"""


class World:
    """What takes snapshots, over one database, and what it is taken from."""

    def __init__(self, db: Database, artifacts: KeptArtifacts) -> None:
        seal = FieldSeal(RING)
        self.db, self.artifacts, self.clock = db, artifacts, SystemClock()
        self.ids = UlidSource(self.clock.now_ms)
        self.events = SqlEventStore(db, seal=seal)
        self.store = SqlSnapshots(db)
        self.registry = WorkflowRegistry(SqlWorkflows(db), ids=self.ids, clock=self.clock)
        self.claims = ClaimCheck(artifacts)
        self.epochs: dict[int, int] = {}
        self.workflows: dict[tuple[str, str], WorkflowRef] = {}

    def taking(self, **changed) -> Taking:
        made = {
            "store": self.store,
            "events": self.events,
            "costs": self.store,
            "definition": self.registry.find,
            "artifacts": self.artifacts,
            "new_id": self.ids.ulid,
            "now_ms": self.clock.now_ms,
        }
        return Taking(**{**made, **changed})

    def ended(self, *tenants: str) -> SnapshotsOfEnded:
        return SnapshotsOfEnded(self.taking(), SqlEndings(self.db), tenants=frozenset(tenants), clock=self.clock)

    async def ref(self, tenant: TenantId, version: str = "1.0.0") -> WorkflowRef:
        workflow, _ = await self.registry.register(tenant, DEFINITION.replace("VERSION", version))
        return workflow.ref

    async def ran(self, tenant: TenantId = ACME, *, large: bool = False, moved: bool = False) -> NewEvents:
        execution = self.ids.execution()
        output = {"n": 1.0, "text": "x" * 300_000} if large else {"n": 1.0, "text": "x"}
        kept = await self.claims.checked(Shelf(tenant, execution), output)
        at_ms = self.clock.now_ms()
        events = [
            ExecutionStarted(at_ms, execution, tenant, await self.ref(tenant), {"a": 1.0}, TraceId("t" * 32)),
            StepScheduled(at_ms, StepPath("a"), "a", 1, AgentName("clerk"), {"b": 2}, 500),
            *([ExecutionMoved(at_ms, "r", await self.ref(tenant, "1.1.0"))] if moved else []),
            StepSucceeded(at_ms, StepPath("a"), 1, kept, WorkerId("wrk_1"), at_ms, at_ms),
            ExecutionCompleted(at_ms, kept),
        ]
        costs = (Observation(StepPath("a"), 1, at_ms, (Usage("model", 250_000, "clerk", input=7),)),)
        new = NewEvents(execution, tenant, 1, 0, tuple(events), reduce(evolve, events, ExecutionState()), costs=costs)
        await self.events.append([new], self.epochs)
        return new

    async def lines(self, snapshot) -> list[content.Line]:
        return [read_line(line) for line in (await self.bytes(snapshot)).splitlines()]

    async def bytes(self, snapshot) -> bytes:
        return await self.artifacts.get(snapshot.shelf, snapshot.content)


@pytest.fixture
async def world(database_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    async with database(database_dsn) as db:
        await upgrade(db)
        made = World(db, await open_artifacts(f"file://{tmp_path}/artifacts", RING))
        made.epochs = dict(await SqlShardLeases(db).acquire(range(4), "writer", lease_s=600))
        yield made


async def test_it_holds_the_events_as_they_were_written_and_everything_they_lean_on(world: World) -> None:
    new = await world.ran(large=True, moved=True)

    taken, fresh = await world.taking().take(ACME, new.execution, len(new.events))

    raw = await world.bytes(taken)
    lines = await world.lines(taken)
    of = {kind: [line for line in lines if line.kind == kind] for kind in ("event", "workflow", "cost", "state", "end")}
    assert (fresh, faults(raw.splitlines())) == (True, [])
    assert hashlib.sha256(raw).hexdigest() == taken.digest
    assert [bytes(line.event) for line in of["event"]] == [encode(event) for event in new.events]
    assert [line.workflow.version for line in of["workflow"]] == ["1.0.0", "1.1.0"]
    assert [line.workflow.agents for line in of["workflow"]] == [["clerk"], ["clerk"]]
    assert [(line.cost.path, line.cost.usage.microdollars) for line in of["cost"]] == [("a", 250_000)]
    assert decode_state(bytes(of["state"][0].state)) == new.state
    (value,) = of["end"][0].end.values
    assert b'"n":1.0' in await world.artifacts.get(taken.shelf, value)
    assert (taken.workflow.version, taken.status, taken.ended_at_ms) == ("1.1.0", "completed", new.state.ended_at_ms)


async def test_it_is_the_same_whenever_and_however_often_it_is_taken(world: World) -> None:
    new = await world.ran()
    taking = world.taking()

    at_once = await asyncio.gather(*(taking.take(ACME, new.execution, 3) for _ in range(8)))
    (first, _) = at_once[0]
    assert {snapshot.id for snapshot, _ in at_once} == {first.id}
    assert [fresh for _, fresh in at_once].count(True) == 1
    assert [use.shelf.owner for use in await world.artifacts.shelves(ACME)] == [first.id]

    await world.store.remove(ACME, first.id)
    again, fresh = await taking.take(ACME, new.execution, 3)
    assert (again.digest, again.id != first.id, fresh) == (first.digest, True, True)
    assert (first.status, (await world.lines(again))[-1].end.events) == ("running", 3)


async def test_what_is_not_all_there_any_more_is_not_taken(world: World) -> None:
    new = await world.ran()
    gone = delete(event_store).where(event_store.c.execution_id == new.execution, event_store.c.version > 2)
    async with world.db.system_write() as connection:
        await connection.execute(gone)

    with pytest.raises(HistoryGone):
        await world.taking().take(ACME, new.execution, 4)
    with pytest.raises(HistoryGone):
        await world.taking().take(OTHER, new.execution, 1)
    assert await world.store.count(ACME, SnapshotFilter()) == 0


async def test_a_value_that_nobody_has_any_more_is_named_as_lost(world: World) -> None:
    new = await world.ran(large=True)
    await world.artifacts.drop(Shelf(ACME, new.execution))

    taken, _ = await world.taking().take(ACME, new.execution, 4)

    end = (await world.lines(taken))[-1].end
    assert (len(end.lost), end.values) == (1, [])


async def test_a_tenant_lists_its_own_by_execution_workflow_and_time(world: World) -> None:
    ours = [await world.ran() for _ in range(3)]
    theirs = await world.ran(OTHER)
    taken = [(await world.taking().take(ACME, new.execution, 4))[0] for new in ours]
    foreign, _ = await world.taking().take(OTHER, theirs.execution, 4)

    async def listed(tenant: TenantId, **wanted: object) -> list[str]:
        page = await world.store.page(tenant, SnapshotFilter(**wanted), limit=9, after=None, newest_first=False)
        assert await world.store.count(tenant, SnapshotFilter(**wanted)) == len(page)
        return [one.id for one in page]

    ids = [one.id for one in taken]
    assert await listed(ACME) == ids
    assert await listed(OTHER) == [foreign.id]
    assert await listed(ACME, execution=theirs.execution) == []
    assert await listed(ACME, execution=ours[1].execution) == [ids[1]]
    assert await listed(ACME, workflow="kept@1.0.0") == await listed(ACME, workflow=taken[0].workflow.id) == ids
    assert await listed(ACME, workflow="kept@2.0.0") == await listed(ACME, workflow="else") == []
    assert await listed(ACME, taken_from_ms=taken[0].created_at_ms, taken_before_ms=2**50) == ids
    assert await listed(ACME, taken_before_ms=taken[0].created_at_ms) == []
    after = SnapshotPlace(taken[0].created_at_ms, ids[0])
    newer = await world.store.page(ACME, SnapshotFilter(), limit=1, after=after, newest_first=False)
    older = await world.store.page(ACME, SnapshotFilter(), limit=1, after=after, newest_first=True)
    assert ([one.id for one in newer], list(older)) == ([ids[1]], [])
    assert await world.store.get(OTHER, ids[0]) is None
    assert not await world.store.remove(OTHER, ids[0])


async def test_each_end_gets_one_from_where_it_was_left_off_whoever_goes_on(world: World) -> None:
    early = await world.ran()
    one, other = world.ended(ACME), world.ended(ACME)
    assert not await one.step()  # begins here: what ended before is the purge's to ask for
    later = [await world.ran() for _ in range(3)]
    await world.ran(OTHER)

    await asyncio.gather(one.step(), other.step())
    while await other.step():
        pass

    page = await world.store.page(ACME, SnapshotFilter(), limit=9, after=None, newest_first=False)
    assert sorted((each.execution, each.version) for each in page) == sorted((new.execution, 4) for new in later)
    assert await world.store.count(OTHER, SnapshotFilter()) == 0
    await one.before_purge(ACME, [early.execution, later[0].execution])
    assert await world.store.of_version(ACME, early.execution, 4) is not None
    assert await world.store.count(ACME, SnapshotFilter()) == 4


async def test_where_the_artifact_store_is_away_nothing_is_passed_over(world: World) -> None:
    new = await world.ran()
    ended = world.ended(ACME)
    await ended.step()
    new = await world.ran()

    class Away:
        async def put(self, *_: object) -> None:
            raise ArtifactsUnavailable("it is away")

    broken = SnapshotsOfEnded(
        world.taking(artifacts=Away()), SqlEndings(world.db), tenants=frozenset({"*"}), clock=world.clock
    )
    with pytest.raises(ArtifactsUnavailable):
        await broken.step()
    with pytest.raises(ArtifactsUnavailable):
        await broken.before_purge(ACME, [new.execution])

    await ended.step()
    assert await world.store.of_version(ACME, new.execution, 4) is not None


async def test_the_purge_takes_what_is_missing_before_a_history_goes_and_else_removes_nothing(world: World) -> None:
    new, foreign = await world.ran(large=True), await world.ran(OTHER)
    at_ms = world.clock.now_ms() + 10
    rules = parse_rules("history=0d")

    class Away(KeptArtifacts):
        async def put(self, *_: object) -> ArtifactRef:
            raise ArtifactsUnavailable("it is away")

    away = SnapshotsOfEnded(
        world.taking(artifacts=Away(None)), SqlEndings(world.db), tenants=frozenset({ACME}), clock=world.clock
    )
    with pytest.raises(ArtifactsUnavailable):
        await RetentionJob(world.db, world.artifacts, rules, Exports(None), away.before_purge).run(at_ms)
    assert await world.events.load(new.execution) is not None

    plan = await RetentionJob(world.db, world.artifacts, rules, Exports(None), world.ended(ACME).before_purge).run(
        at_ms
    )

    assert {one for removal in plan.removals for one in removal.ids} == {new.execution, foreign.execution}
    assert [await world.events.load(one.execution) for one in (new, foreign)] == [None, None]
    taken = await world.store.of_version(ACME, new.execution, 4)
    assert [bytes(line.event) for line in await world.lines(taken) if line.kind == "event"] == [
        encode(event) for event in new.events
    ]
    assert await world.store.count(OTHER, SnapshotFilter()) == 0
    assert [use.shelf.owner for use in await world.artifacts.shelves()] == [taken.id]
    report = await storage_report(world.db, world.artifacts)
    assert {(use.workflow, use.kind) for use in report.uses if use.tenant == ACME} >= {
        ("kept", "snapshot"),
        ("kept", "artifact"),
    }


async def test_what_cannot_be_recorded_keeps_nobody_else_waiting(world: World) -> None:
    ended = world.ended("*")
    await ended.step()
    broken, good = await world.ran(), await world.ran()
    async with world.db.system_write() as connection:
        await connection.execute(
            delete(event_store).where(event_store.c.execution_id == broken.execution, event_store.c.version == 1)
        )

    while await ended.step():
        pass

    assert await world.store.of_version(ACME, broken.execution, 4) is None
    assert await world.store.of_version(ACME, good.execution, 4) is not None
