"""What steps used is committed with their results, once, and added up exactly on both engines."""

from collections.abc import AsyncIterator

import pytest

from agentflow.contracts.usage import Usage
from agentflow.execution.events import ExecutionStarted, StepScheduled, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId
from agentflow.ports import NewEvents, Observation, VersionConflict
from control_plane.costs.report import Span, Spent
from control_plane.storage.costs import SqlCosts
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

ACME, OTHER = TenantId("acme"), TenantId("other")
ALWAYS = Span(None, None)
MODEL = Usage("model x", 2_100, "writer", input=900, cache_read=50, output=310)
LOCAL = Usage("model local", None, "writer", input=7)


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        await SqlShardLeases(opened).acquire([0], "us", lease_s=60)
        yield opened


def began(name: str, workflow: str = "support", tenant: TenantId = ACME) -> NewEvents:
    ref = WorkflowRef(WorkflowId("wf_1"), workflow, "1.0.0", "d")
    event = ExecutionStarted(1, ExecutionId(name), tenant, ref, {}, TraceId("t"))
    return NewEvents(ExecutionId(name), tenant, 0, 0, (event,), evolve(ExecutionState(), event))


def with_costs(before: NewEvents, *costs: Observation) -> NewEvents:
    event = StepScheduled(2, StepPath("a"), "a", 1, AgentName("a"), {}, 1_000)
    version = before.state.version
    after = evolve(before.state, event)
    return NewEvents(before.execution, before.tenant, 0, version, (event,), after, costs=costs)


async def spent(db: Database, scope: str, span: Span = ALWAYS, tenant: TenantId = ACME) -> list[Spent]:
    return list(await SqlCosts(db).by(tenant, scope, span, limit=10))  # type: ignore[arg-type]


async def test_costs_are_committed_with_their_events_and_added_up_by_everything(db: Database) -> None:
    store, epochs = SqlEventStore(db), {0: 1}
    first, second = began("exec_1"), began("exec_2", "report")
    await store.append([first, second, began("exec_3", tenant=OTHER)], epochs)
    used = Observation(StepPath("a"), 1, 1_000, (MODEL, LOCAL))
    await store.append([with_costs(first, used)], epochs)
    await store.append([with_costs(second, Observation(StepPath("b"), 1, 2_000, (MODEL,)))], epochs)

    total = Spent("acme", 3, 1, 4_200, input=1_807, cache_read=100, output=620)
    assert await spent(db, "tenant") == [total]
    assert [(line.name, line.microdollars, line.unknown) for line in await spent(db, "workflow")] == [
        ("support", 2_100, 1),
        ("report", 2_100, 0),
    ]
    assert [(line.name, line.microdollars) for line in await spent(db, "agent")] == [("writer", 4_200)]
    assert [(line.name, line.observations) for line in await spent(db, "resource")] == [
        ("model x", 2),
        ("model local", 1),
    ]
    assert [line.name for line in await spent(db, "workflow", Span(1_500, None))] == ["report"]
    assert [line.name for line in await spent(db, "workflow", Span(None, 1_500))] == ["support"]
    assert await spent(db, "tenant", tenant=OTHER) == []


async def test_a_result_that_is_told_twice_costs_once_and_one_that_is_refused_nothing(db: Database) -> None:
    store, epochs = SqlEventStore(db), {0: 1}
    begun = began("exec_1")
    await store.append([begun], epochs)
    used = Observation(StepPath("a"), 1, 1_000, (MODEL,))
    once = with_costs(begun, used)
    await store.append([once], epochs)
    with pytest.raises(VersionConflict):
        await store.append([with_costs(begun, Observation(StepPath("b"), 1, 1_000, (MODEL,)))], epochs)
    await store.append([with_costs(once, used)], epochs)  # the same attempt, by another way

    (line,) = await spent(db, "tenant")
    assert (line.observations, line.microdollars) == (1, 2_100)
