"""/api/v1/tools: register tool definitions, look at them, and try one out on a worker."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.clock import rfc3339
from control_plane.api.errors import BodyTooLarge, UnsupportedBody
from control_plane.api.request import Behind, Tenant
from control_plane.registry.tools import RegisteredTool

router = APIRouter(prefix="/api/v1/tools", tags=["tools"])

_BODY_TYPES = frozenset({"application/json", "application/yaml", "application/x-yaml", "text/yaml"})


class TestRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    input: Any = Field(default_factory=dict, description="Checked against the tool's input schema.")
    network: bool = Field(default=False, description="Let it reach the hosts it is granted; without, it reaches none.")


@router.post("", status_code=201, openapi_extra={"requestBody": {"content": {"application/yaml": {}}}})
async def push(request: Request, response: Response, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _BODY_TYPES:
        raise UnsupportedBody(content_type)
    body = await request.body()
    if len(body) > limits.DEFINITION_BYTES_MAX:
        raise BodyTooLarge(limits.DEFINITION_BYTES_MAX)
    tool, created = await behind.tools.push(tenant, body.decode("utf-8", errors="replace"))
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/tools/{tool.name}@{tool.version}"
    return summary_view(tool)


@router.get("")
async def list_tools(
    behind: Behind,
    tenant: Tenant,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=limits.LIST_PAGE_MAX)] = 100,
) -> dict[str, Any]:
    tools = await behind.tools.list(tenant, name=name)
    return {"items": [summary_view(tool) for tool in tools[:limit]], "total_count": len(tools)}


@router.get("/{reference}")
async def show(reference: str, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    tool = await behind.tools.find(tenant, reference)
    return {**summary_view(tool), "definition": tool.definition}


@router.post("/{reference}/test")
async def try_out(reference: str, body: TestRequest, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    """A call outside of any execution, in the sandbox of some worker. A tool that fails is an answer, not an error."""
    tool = await behind.tools.find(tenant, reference)
    outcome = await behind.test_tool(tenant, tool, body.input, network=body.network)
    return {"tool": tool.name, "version": tool.version, "digest": tool.digest, **outcome}


def summary_view(tool: RegisteredTool) -> dict[str, Any]:
    return {
        "id": f"{tool.name}@{tool.version}",
        "name": tool.name,
        "version": tool.version,
        "digest": tool.digest,
        "description": tool.description,
        "type": tool.spec["run"]["type"],
        "permissions": tool.spec.get("permissions", []),
        "effect": tool.spec.get("effect", "idempotent"),
        "builtin": tool.builtin,
        "created_at": rfc3339(tool.created_at_ms) if tool.created_at_ms else None,
    }
