"""/api/v1/workflows: register definitions, look at them, start executions of them."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.errors import Rejected
from agentflow.ids import TenantId
from agentflow.workflow.durations import parse_duration
from control_plane.api.errors import BodyTooLarge, UnsupportedBody, malformed
from control_plane.api.executions import outcome_view
from control_plane.api.request import Behind, IdempotencyKey, Tenant
from control_plane.registry.workflows import WorkflowSummary
from control_plane.service import ControlPlane, StartOptions

router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"])

_BODY_TYPES = frozenset({"application/json", "application/yaml", "application/x-yaml", "text/yaml"})


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


@router.post("", status_code=201, openapi_extra={"requestBody": {"content": {"application/yaml": {}}}})
async def register(request: Request, response: Response, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    # Only declared types: a page in a browser cannot send these here without our consent (no CORS).
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _BODY_TYPES:
        raise UnsupportedBody(content_type)
    body = await request.body()
    if len(body) > limits.DEFINITION_BYTES_MAX:
        raise BodyTooLarge(limits.DEFINITION_BYTES_MAX)
    workflow, created = await behind.registry.register(tenant, body.decode("utf-8", errors="replace"))
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/workflows/{workflow.id}"
    warnings = await behind.tool_warnings(tenant, workflow.source)
    return {**summary_view(workflow), **({"warnings": msgspec.to_builtins(warnings)} if warnings else {})}


@router.get("")
async def list_workflows(
    behind: Behind,
    tenant: Tenant,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=limits.LIST_PAGE_MAX)] = 50,
) -> dict[str, Any]:
    workflows = await behind.registry.list(tenant, name=name, limit=limit)
    total = await behind.registry.count(tenant, name=name)
    return {"items": [summary_view(workflow) for workflow in workflows], "total_count": total}


@router.get("/{reference}")
async def show(reference: str, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    workflow = await behind.registry.find(tenant, reference)
    return {**summary_view(workflow), "definition": workflow.definition, "source": workflow.source}


@router.post(
    "/{reference}/execute",
    status_code=202,
    openapi_extra={
        "parameters": [{"in": "path", "name": "reference", "required": True, "schema": {"type": "string"}}],
        "requestBody": {"content": {"application/json": {"schema": ExecuteRequest.model_json_schema()}}},
    },
)
async def execute(request: Request, behind: Behind, tenant: Tenant, key: IdempotencyKey = None) -> Response:
    """Start an execution. A request with the same `Idempotency-Key` gives the same execution."""
    return await started(request, behind, tenant, key)


async def started(request: Request, behind: ControlPlane, tenant: TenantId, key: str | None) -> Response:
    """The same for whoever comes through the framework and for whoever comes past it (see `shortcut`)."""
    body = await _execute_request(request)
    wait_s = body.wait_s if body.wait else None
    how = StartOptions(body.priority, _not_before_ms(body, behind))
    reference = request.path_params["reference"]
    state = await behind.execute(tenant, reference, body.input, wait_s=wait_s, key=key, how=how)
    answer: dict[str, Any] = {"execution_id": state.execution, "trace_id": state.trace, "status": state.status}
    if state.ended:
        answer |= await behind.whole(state, outcome_view(state))
    return Response(
        msgspec.json.encode(answer),
        200 if state.ended else 202,
        {"Location": f"/api/v1/executions/{state.execution}"},
        "application/json",
    )


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


def summary_view(workflow: WorkflowSummary) -> dict[str, Any]:
    return {
        "id": workflow.id,
        "name": workflow.name,
        "version": workflow.version,
        "digest": workflow.digest,
        "planner": workflow.planner,
        "created_at": rfc3339(workflow.created_at_ms),
    }
