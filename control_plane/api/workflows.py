"""/api/v1/workflows: register definitions, look at them, start executions of them."""

from typing import Annotated, Any, cast

import msgspec
from fastapi import Depends, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.errors import Rejected
from agentflow.ids import TenantId
from agentflow.workflow.durations import parse_duration
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.definitions import definition_body, definition_text
from control_plane.api.errors import UnsupportedBody, malformed
from control_plane.api.executions import outcome_view, started_view
from control_plane.api.guard import guarded_router, needs, principal_of
from control_plane.api.listing import Filter, Listing, Page, keyed
from control_plane.api.request import Behind, IdempotencyKey, IfMatch, Tenant
from control_plane.identity.permissions import Permission
from control_plane.registry.versions import precedence
from control_plane.registry.workflows import WorkflowFilter, WorkflowNotFound, WorkflowOrder, WorkflowSummary
from control_plane.service import ControlPlane, StartOptions

router = guarded_router(prefix="/api/v1/workflows", tags=["workflows"])

_LISTED = Listing(
    filters={
        "name": Filter("Its name."),
        "planner": Filter("The kind of its planner, such as `fsm`."),
        "tag": Filter("One of its tags."),
    },
    sorts=("created_at", "name"),
    default_sort="-created_at",
)


# What whoever starts something should know: the budgets that cover it, how each stands, how much of it is gone.
BUDGETS_HEADER = "Agentflow-Budgets"
_HEADERS = {
    BUDGETS_HEADER: {
        "description": "Budgets that are nearly used up, or are and only warn: `ID; state=warned; used=0.870`.",
        "schema": {"type": "string"},
    }
}
_STARTED = documented(402, 404, 409, 413, 415, 422, ok={202: schemas.Started, 200: schemas.Result})
for _status in (200, 202):
    _STARTED[_status]["headers"] = _HEADERS
_EXAMPLE: dict[str, Any] = {
    "apiVersion": "agentflow/v1",
    "kind": "Workflow",
    "metadata": {"name": "approval", "version": "1.0.0"},
    "spec": {
        "planner": "fsm",
        "fsm": {
            "initial_state": "approve",
            "final_states": ["approve"],
            "states": {"approve": {"human": {"title": "May it go on?"}, "timeout": "24h"}},
        },
    },
}


class ExecuteRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    input: Any = Field(default_factory=dict, description="Checked against the workflow's input schema.")
    wait: bool = Field(default=False, description="Answer with the result instead of at once.")
    priority: int = Field(
        default=0,
        ge=-limits.PRIORITY_MAX,
        le=limits.PRIORITY_MAX,
        description="Higher goes first among those that wait.",
    )
    start_at: AwareDatetime | None = Field(default=None, description="Begin no earlier than this.")
    delay: str | None = Field(default=None, description="Begin no earlier than after this long, such as `10m`.")
    wait_s: float = Field(default=60, gt=0, le=limits.WAIT_S_MAX, description="How long to wait for it.")


@router.post(
    "",
    status_code=201,
    responses=documented(409, 412, 413, 415, 422, ok={201: schemas.PushedWorkflow, 200: schemas.PushedWorkflow}),
    openapi_extra={"requestBody": definition_body(_EXAMPLE)},
)
@needs(Permission.WORKFLOWS_WRITE)
async def register(request: Request, behind: Behind, tenant: Tenant, if_match: IfMatch = None) -> Response:
    """Register a definition in YAML or JSON: a new workflow, or a version of one. The same again changes nothing.

    With `If-Match`, the ETag of the newest version: refused (412) if somebody has registered another one since.
    """
    newest = None if if_match is None or if_match.strip() == "*" else if_match.strip().replace("-gzip", "").strip('"')
    workflow, created = await behind.register(tenant, await definition_text(request), newest=newest)
    warnings = await behind.tool_warnings(tenant, workflow.source)
    return answer(
        {**summary_view(workflow), **({"warnings": msgspec.to_builtins(warnings)} if warnings else {})},
        201 if created else 200,
        {"Location": f"/api/v1/workflows/{workflow.id}", "ETag": workflow_etag(workflow)},
    )


@router.get("", responses=documented(422, ok=schemas.WorkflowList), openapi_extra=_LISTED.openapi())
@needs(Permission.WORKFLOWS_READ)
async def list_workflows(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Every version of every workflow, newest first."""
    wanted = WorkflowFilter(**page.filters)
    found = await behind.registry.list(
        tenant,
        wanted,
        order=cast(WorkflowOrder, page.sort),
        descending=page.descending,
        after=page.after,
        limit=page.limit + 1,
    )
    shown = found[: page.limit]
    total = await behind.registry.count(tenant, wanted)
    last = None
    if len(found) > len(shown):
        last = (shown[-1].name if page.sort == "name" else shown[-1].created_at_ms, shown[-1].id)
    return answer(page.answer([summary_view(workflow) for workflow in shown], last, total=total))


@router.get("/{reference}", responses=documented(404, ok=schemas.Workflow))
@needs(Permission.WORKFLOWS_READ)
async def show(reference: str, behind: Behind, tenant: Tenant) -> Response:
    """By id, by name (its newest version), or by name@version."""
    workflow = await behind.registry.find(tenant, reference)
    view = {**summary_view(workflow), "definition": workflow.definition, "source": workflow.source}
    return answer(view, headers={"ETag": workflow_etag(workflow)})


_VERSIONS = Listing(filters={}, sorts=("version",), default_sort="-version")


@router.get(
    "/{name}/versions",
    responses=documented(404, 422, ok=schemas.WorkflowList),
    openapi_extra=_VERSIONS.openapi(),
)
@needs(Permission.WORKFLOWS_READ)
async def versions(name: str, behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_VERSIONS)]) -> Response:
    """Every version of one workflow, the highest first."""
    found = await behind.registry.versions(tenant, name)
    if not found:
        raise WorkflowNotFound(name, hint="List them with `af workflows`.")
    shown, last = keyed(page, found, lambda workflow: precedence(workflow.version))
    return answer(page.answer([summary_view(workflow) for workflow in shown], last, total=len(found)))


@router.get("/{reference}/plans/{plan}", responses=documented(404, ok=schemas.Plan))
@needs(Permission.WORKFLOWS_READ)
async def show_plan(reference: str, plan: str, behind: Behind, tenant: Tenant) -> Response:
    """The graph of a version's steps and how often each can run. `current` is the plan of the version named."""
    workflow = await behind.registry.find(tenant, reference)
    found = msgspec.to_builtins(await behind.registry.plan(tenant, workflow, plan))
    named = {"id": workflow.id, "name": workflow.name, "version": workflow.version}
    return answer({"id": found.pop("plan_hash"), "workflow": named, **found})


@router.post(
    "/{reference}/execute",
    status_code=202,
    responses=_STARTED,
    openapi_extra={
        "parameters": [{"in": "path", "name": "reference", "required": True, "schema": {"type": "string"}}],
        "requestBody": {"content": {"application/json": {"schema": ExecuteRequest.model_json_schema()}}},
    },
)
@needs(Permission.WORKFLOWS_EXECUTE)
async def execute(request: Request, behind: Behind, tenant: Tenant, key: IdempotencyKey = None) -> Response:
    """Start an execution. A request with the same `Idempotency-Key` gives the same execution."""
    return await started(request, behind, tenant, key)


async def started(request: Request, behind: ControlPlane, tenant: TenantId, key: str | None) -> Response:
    """The same for whoever comes through the framework and for whoever comes past it (see `shortcut`)."""
    await behind.require_allowed(principal_of(request), request.path_params["reference"])
    body = await _execute_request(request)
    wait_s = body.wait_s if body.wait else None
    how = StartOptions(body.priority, _not_before_ms(body, behind))
    reference = request.path_params["reference"]
    state = await behind.execute(tenant, reference, body.input, wait_s=wait_s, key=key, how=how)
    told = started_view(state)
    if state.ended:
        told |= await behind.whole(state, outcome_view(state))
    headers = {"Location": f"/api/v1/executions/{state.execution}"}
    if state.workflow is not None and (warnings := behind.purse.warnings(tenant, state.workflow.name)):
        headers[BUDGETS_HEADER] = ", ".join(warnings)
    return answer(told, 200 if state.ended else 202, headers)


async def _execute_request(request: Request) -> ExecuteRequest:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise UnsupportedBody(content_type)
    try:
        return ExecuteRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise malformed({**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()) from None


def _not_before_ms(body: ExecuteRequest, behind: ControlPlane) -> int | None:
    if body.start_at is not None and body.delay is not None:
        raise Unstartable("`start_at` and `delay` were both given")
    if body.start_at is not None:
        return round(body.start_at.timestamp() * 1000)
    if body.delay is None:
        return None
    delay_ms = parse_duration(body.delay)
    if delay_ms is None or delay_ms > limits.TIMEOUT_MS_MAX:
        raise Unstartable(f"`delay` is {body.delay!r}")
    return behind.now_ms() + delay_ms


class Unstartable(Rejected):
    code = "AF1221"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"When this execution should begin cannot be told: {reason}.",
            hint="Give `start_at` as an RFC 3339 moment, or `delay` as a duration such as `90s`, `10m` or `2h`.",
        )


def workflow_etag(workflow: WorkflowSummary) -> str:
    """A registered version never changes, so its id is as good as a hash."""
    return f'"{workflow.id}"'


def summary_view(workflow: WorkflowSummary) -> dict[str, Any]:
    return {
        "id": workflow.id,
        "name": workflow.name,
        "version": workflow.version,
        "digest": workflow.digest,
        "planner": workflow.planner,
        "created_at": rfc3339(workflow.created_at_ms),
    }
