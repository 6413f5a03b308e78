"""/api/v1/executions/{id}/state, /ticks and /evaluations: why it is where it is, made from its events when asked."""

import asyncio
from collections.abc import Sequence
from functools import reduce
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import Query

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.errors import Conflict, NotFound
from agentflow.execution.events import Event
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.executions import execution_view
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission
from control_plane.registry.workflows import RegisteredWorkflow
from control_plane.service import ControlPlane
from planners.behavior_tree.statuses import TickChange, ticks
from planners.behavior_tree.statuses import after as standing_after
from planners.tracing import Evaluation, evaluations

router = guarded_router(prefix="/api/v1/executions/{execution}", tags=["executions"])
After = Annotated[int, Query(ge=0, description="Only what came with later events than this version.")]
Limit = Annotated[int, Query(ge=1, le=limits.LIST_PAGE_MAX)]


class NotATree(Conflict):
    code = "AF1270"

    def __init__(self, workflow: str) -> None:
        super().__init__(
            f"Workflow {workflow} is not a behaviour tree, so its executions have no ticks.",
            hint="`af executions explain` shows what was evaluated, of any workflow.",
        )


class NoSuchTick(NotFound):
    code = "AF1271"

    def __init__(self, execution: str, version: int) -> None:
        super().__init__(
            f"Execution {execution} had not ticked at version {version}.",
            hint="`af executions ticks` lists them, each with its version.",
        )


class NoSuchVersion(NotFound):
    code = "AF1285"

    def __init__(self, execution: str, version: int, newest: int) -> None:
        super().__init__(
            f"Execution {execution} has not come to version {version}: its newest is {newest}.",
            hint="`af executions show --events` lists its events, each with its version.",
        )


@router.get("/ticks", responses=documented(404, 409, 422, ok=schemas.TickList))
@needs(Permission.EXECUTIONS_READ)
async def list_ticks(
    execution: str, behind: Behind, tenant: Tenant, after: After = 0, limit: Limit = limits.LIST_PAGE_MAX
) -> dict[str, Any]:
    """What each tick of a tree changed: the status of nodes, and variables."""
    state = await _of_a_tree(behind, tenant, execution)
    found = [it for it in ticks(enumerate(await _events(behind, state), 1)) if it.version > after]
    return {"items": await behind.whole(state, [_tick_view(it) for it in found[:limit]]), "total_count": len(found)}


@router.get("/ticks/{version}", responses=documented(404, 409, 422, ok=schemas.Tick))
@needs(Permission.EXECUTIONS_READ)
async def show_tick(execution: str, version: int, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    """How every node of a tree stood after a tick, and every variable."""
    state = await _of_a_tree(behind, tenant, execution)
    known = await _events(behind, state)
    standing = standing_after(ticks(enumerate(known[:version], 1)))
    if standing is None or version > state.version:
        raise NoSuchTick(execution, version)
    view: dict[str, Any] = await behind.whole(state, _tick_view(standing))
    return view


@router.get("/state", responses=documented(404, 422, ok=schemas.Execution))
@needs(Permission.EXECUTIONS_READ)
async def show_state(
    execution: str,
    behind: Behind,
    tenant: Tenant,
    version: Annotated[int, Query(ge=1, le=limits.LOOKED_BACK_EVENTS_MAX, description="After so many of its events.")],
) -> dict[str, Any]:
    """Where an execution stood at any version, made again from its events."""
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    if version > state.version:
        raise NoSuchVersion(execution, version, state.version)
    stored = await behind.events.read(state.tenant, state.execution, limit=version)
    return await execution_view(behind, reduce(evolve, (one.event for one in stored), ExecutionState()))


@router.get("/evaluations", responses=documented(404, 422, ok=schemas.EvaluationList))
@needs(Permission.EXECUTIONS_READ)
async def list_evaluations(
    execution: str, behind: Behind, tenant: Tenant, after: After = 0, limit: Limit = limits.LIST_PAGE_MAX
) -> dict[str, Any]:
    """Every expression that was evaluated, the values it read and its result, in their order."""
    state, workflow = await _with_workflow(behind, tenant, execution)
    known = await _events(behind, state)

    def made() -> list[Evaluation]:
        fresh = (it for it in evaluations(workflow.source, known) if it.version > after)
        return list(islice(fresh, limit))

    found = await asyncio.to_thread(made)
    return {"items": await behind.whole(state, [_evaluation_view(it) for it in found])}


async def _with_workflow(
    behind: ControlPlane, tenant: TenantId, execution: str
) -> tuple[ExecutionState, RegisteredWorkflow]:
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    assert state.workflow is not None, "an execution that can be found has started"
    return state, await behind.registry.find(tenant, state.workflow.id)


async def _of_a_tree(behind: ControlPlane, tenant: TenantId, execution: str) -> ExecutionState:
    state, workflow = await _with_workflow(behind, tenant, execution)
    if workflow.planner != "behavior_tree":
        raise NotATree(workflow.name)
    return state


async def _events(behind: ControlPlane, state: ExecutionState) -> Sequence[Event]:
    """From the first on, as many as one look back may take."""
    stored = await behind.events.read(state.tenant, state.execution, limit=limits.LOOKED_BACK_EVENTS_MAX)
    return [one.event for one in stored]


def _tick_view(change: TickChange) -> dict[str, Any]:
    return {"version": change.version, "at": rfc3339(change.at_ms), "nodes": change.nodes, "vars": change.vars}


def _evaluation_view(evaluation: Evaluation) -> dict[str, Any]:
    trace = evaluation.trace
    return {
        "version": evaluation.version,
        "at": rfc3339(evaluation.at_ms),
        "expression": trace.expression,
        "language": trace.language,
        "values": dict(trace.values),
        "result": trace.result,
        "error": msgspec.to_builtins(trace.fault),
    }
