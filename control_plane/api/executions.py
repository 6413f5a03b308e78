"""/api/v1/executions: what became of each, its state now and its events."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query, Response

from agentflow import limits
from agentflow.artifacts.claim_check import bytes_claimed
from agentflow.clock import rfc3339
from agentflow.contracts.claims import builtins
from agentflow.execution.state import Doubt, ExecutionState, Status
from agentflow.ids import ExecutionId
from agentflow.ports import StoredEvent
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, moment, one_of
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace, ExecutionSummary
from control_plane.registry.plans import PlanStep
from control_plane.service import DOUBT_FORM, ControlPlane

router = guarded_router(prefix="/api/v1/executions", tags=["executions"])


_LISTED = Listing(
    filters={
        "workflow": Filter("Of this workflow: its id, its name, or name@version."),
        "status": one_of("queued", "running", "paused", "completed", "failed", "cancelled"),
        "tag": Filter("Of workflows with this tag."),
        "started_after": moment("Started at this moment or later."),
        "started_before": moment("Started before this moment."),
    },
    sorts=("started_at",),
    default_sort="-started_at",
    by_input=True,
)


@router.get("", responses=documented(422, ok=schemas.ExecutionList), openapi_extra=_LISTED.openapi())
@needs(Permission.EXECUTIONS_READ)
async def list_executions(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Newest first. What starts while you turn pages moves nothing between them.

    Filtered by the input, a page may be short and still have a `next_cursor`: so many rows were looked into.
    """
    wanted = ExecutionFilter(
        workflow=page.filters.get("workflow"),
        statuses=page.filters.get("status", ()),
        tag=page.filters.get("tag"),
        started_from_ms=page.filters.get("started_after"),
        started_before_ms=page.filters.get("started_before"),
        attributes=page.attributes,
    )
    after = None if page.after is None else ExecutionPlace(*page.after)
    found = await behind.executions.page(tenant, wanted, limit=page.limit, after=after, newest_first=page.descending)
    total = None if page.attributes else await behind.executions.count(tenant, wanted)
    last = None if found.reached is None else (found.reached.started_at_ms, found.reached.id)
    items = [summary_view(summary) for summary in found.items]
    return answer(page.answer(items, last, total=total, exact=total is None or total < limits.LIST_COUNT_MAX))


@router.get("/{execution}", responses=documented(404, ok=schemas.Execution))
@needs(Permission.EXECUTIONS_READ)
async def show(execution: str, behind: Behind, tenant: Tenant) -> Response:
    return await execution_answer(behind, await behind.orchestrator.state(tenant, ExecutionId(execution)))


@router.get("/{execution}/events", responses=documented(404, 422, ok=schemas.EventPage))
@needs(Permission.EXECUTIONS_READ)
async def events(
    execution: str,
    behind: Behind,
    tenant: Tenant,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=limits.EVENTS_PAGE_MAX)] = limits.EVENTS_PAGE_MAX,
    wait_s: Annotated[float, Query(ge=0, le=limits.WAIT_S_MAX)] = 0,
) -> Response:
    """With `wait_s` a long poll: answers once there is an event after `after`, or the execution has ended."""
    state = await behind.orchestrator.wait(
        tenant, ExecutionId(execution), lambda newer: newer.version > after or newer.ended, within_s=wait_s
    )
    stored = await behind.events.read(tenant, state.execution, after_version=after, limit=limit)
    shown = _page(stored)
    return answer(
        {
            "items": [await behind.whole(state, event_view(event)) for event in shown],
            "ended": state.ended and after + len(shown) >= state.version,
        }
    )


@router.get("/{execution}/steps", responses=documented(404, 422, ok=schemas.StepPage))
@needs(Permission.EXECUTIONS_READ)
async def steps(
    execution: str,
    behind: Behind,
    tenant: Tenant,
    after: Annotated[int, Query(ge=0, le=2**53, description="Begin behind the step with this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=limits.EVENTS_PAGE_MAX)] = limits.EVENTS_PAGE_MAX,
) -> Response:
    """Its steps and how far each has come, in the order in which they were first asked for."""
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    found = await behind.plans.steps(tenant, state.execution, after_number=after, limit=limit)
    return answer({"items": [step_view(step) for step in found]})


def step_view(step: PlanStep) -> dict[str, Any]:
    view: dict[str, Any] = msgspec.to_builtins(step)
    scheduled_ms, ended_ms = view.pop("scheduled_at_ms"), view.pop("ended_at_ms")
    return {
        **view,
        "scheduled_at": rfc3339(scheduled_ms),
        "ended_at": None if ended_ms is None else rfc3339(ended_ms),
    }


def _page(stored: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """As many as fit into an answer with their large values in it, and always one."""
    room = limits.EVENTS_PAGE_BYTES_MAX
    for at, event in enumerate(stored):
        room -= bytes_claimed(event.event)
        if room < 0 and at > 0:
            return stored[:at]
    return stored


async def execution_answer(behind: ControlPlane, state: ExecutionState) -> Response:
    return answer(await execution_view(behind, state), headers={"ETag": execution_etag(state)})


def execution_etag(state: ExecutionState) -> str:
    """Everything shown of an execution follows from its events, so their number is as good as a hash."""
    return f'"{state.version}"'


async def execution_view(behind: ControlPlane, state: ExecutionState) -> dict[str, Any]:
    """Where an execution stands, with every large value in its place."""
    view: dict[str, Any] = await behind.whole(state, state_view(state))
    return view


def state_view(state: ExecutionState) -> dict[str, Any]:
    return {
        "id": state.execution,
        "workflow": msgspec.to_builtins(state.workflow),
        "trace_id": state.trace,
        "version": state.version,
        "input": state.input,
        **outcome_view(state),
        "in_flight": [
            {
                "path": step.path,
                "name": step.name,
                "agent": step.agent,
                "tool": step.tool,
                "attempt": step.attempt,
                "since": rfc3339(step.at_ms),
            }
            for step in state.in_flight.values()
        ],
        "waiting": [
            {
                "path": path,
                "name": waiting.last.name,
                "attempt": waiting.last.attempt + 1,
                "retry_at": rfc3339(waiting.retry_at_ms),
            }
            for path, waiting in state.waiting.items()
        ],
        "timers": [{"key": key, "due_at": rfc3339(due_ms)} for key, due_ms in state.timers.items()],
        "signals": [{"key": key, "name": awaited.name} for key, awaited in state.awaited.items()],
        "children": [{"path": child.path, "workflow": child.workflow} for child in state.children.values()],
        "tasks": [
            *({"path": task.path, **task.task} for task in state.tasks.values()),
            *(_doubt_view(state, path, doubt) for path, doubt in state.doubts.items()),
        ],
        "priority": state.priority,
        "queue": _queue_view(state),
        "parent": None if state.parent is None else msgspec.to_builtins(state.parent),
        "forked": None if state.forked is None else msgspec.to_builtins(state.forked),
        "failed_at": _failed_at(state),
        "breakpoints": list(state.breakpoints),
        "stopped_at": state.stopped_at or None,
        "held_by": state.held_by or None,
        "vars": state.vars,
        "outputs": dict(state.outputs.items()),
    }


def _doubt_view(state: ExecutionState, path: str, doubt: Doubt) -> dict[str, Any]:
    """The question to a person: what was to be done, and all that is known of it."""
    claim = state.claimed.get(path)
    return {
        "path": path,
        "kind": "in_doubt",
        "title": f"Was `{doubt.step.tool or doubt.step.agent}` called?",
        "instructions": "Look where it would have had its effect. `done` goes on with the output you give, `retry` "
        "calls it again, `fail` ends the step as failed.",
        "form": DOUBT_FORM,
        "evidence": {
            "tool": doubt.step.tool,
            "input": doubt.step.input,
            "effect_key": f"{state.tenant}/{state.execution}/{path}",
            "attempt": None if claim is None else claim.attempt,
            "worker": None if claim is None else claim.worker,
            "since": rfc3339(doubt.since_ms),
            "error": msgspec.to_builtins(doubt.fault),
        },
    }


def _queue_view(state: ExecutionState) -> dict[str, Any] | None:
    """What a queued execution waits for."""
    queue = state.queue
    if state.status is not Status.QUEUED or queue is None:
        return None
    return {
        "start_at": None if queue.not_before_ms is None else rfc3339(queue.not_before_ms),
        "workflow_max": queue.workflow_max,
        "tenant": queue.of_tenant,
    }


def _failed_at(state: ExecutionState) -> str | None:
    """The step, child or task whose outcome a failed execution could not go on from; None after it undid its work."""
    broken = state.broken if state.status is Status.FAILED else None
    return None if broken is None or broken.answered is None else broken.answered.path


def started_view(state: ExecutionState) -> dict[str, Any]:
    return {
        "execution_id": state.execution,
        "job_id": state.execution,
        "trace_id": state.trace,
        "status": state.status,
    }


def outcome_view(state: ExecutionState) -> dict[str, Any]:
    return {
        "status": state.status,
        "output": state.output,
        "error": msgspec.to_builtins(state.fault),
        "started_at": rfc3339(state.started_at_ms),
        "ended_at": None if state.ended_at_ms is None else rfc3339(state.ended_at_ms),
    }


def event_view(stored: StoredEvent) -> dict[str, Any]:
    data = builtins(stored.event)
    return {"version": stored.version, "type": data.pop("type"), "at": rfc3339(data.pop("at_ms")), "data": data}


def summary_view(summary: ExecutionSummary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "workflow": msgspec.to_builtins(summary.workflow),
        "status": summary.status,
        "started_at": rfc3339(summary.started_at_ms),
        "ended_at": None if summary.ended_at_ms is None else rfc3339(summary.ended_at_ms),
        "trace_id": summary.trace,
    }
