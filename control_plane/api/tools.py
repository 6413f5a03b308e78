"""/api/v1/tools: register tool definitions, look at them, and try one out on a worker."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.definitions import definition_body, definition_text
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, flag, keyed
from control_plane.api.request import Behind, Caller, Tenant
from control_plane.identity.permissions import Permission
from control_plane.registry.tools import RegisteredTool
from control_plane.registry.versions import precedence

router = guarded_router(prefix="/api/v1/tools", tags=["tools"])

_LISTED = Listing(
    filters={
        "name": Filter("Its name."),
        "builtin": flag("Whether it comes with AgentFlow."),
        "permission": Filter("One of the permissions it declares."),
    },
    sorts=("name",),
    default_sort="name",
)


_EXAMPLE: dict[str, Any] = {
    "apiVersion": "agentflow/v1",
    "kind": "Tool",
    "metadata": {"name": "crm.lookup", "version": "1.0.0"},
    "spec": {
        "run": {"type": "http", "url": "https://crm.example.com/lookup"},
        "permissions": ["network.http:crm.example.com"],
        "input": {"type": "object"},
    },
}


class TestRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    input: Any = Field(default_factory=dict, description="Checked against the tool's input schema.")
    network: bool = Field(default=False, description="Let it reach the hosts it is granted; without, it reaches none.")


@router.post(
    "",
    status_code=201,
    responses=documented(409, 413, 415, 422, ok={201: schemas.ToolSummary, 200: schemas.ToolSummary}),
    openapi_extra={"requestBody": definition_body(_EXAMPLE)},
)
@needs(Permission.TOOLS_WRITE)
async def push(request: Request, behind: Behind, tenant: Tenant) -> Response:
    """Register a definition in YAML or JSON. The same content again changes nothing (200)."""
    tool, created = await behind.tools.push(tenant, await definition_text(request))
    headers = {"Location": f"/api/v1/tools/{tool.name}@{tool.version}"}
    return answer(summary_view(tool), 201 if created else 200, headers)


@router.get("", responses=documented(422, ok=schemas.ToolList), openapi_extra=_LISTED.openapi())
@needs(Permission.TOOLS_READ)
async def list_tools(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Every version of every tool, the built-in ones among them."""
    tools = [tool for tool in await behind.tools.list(tenant, name=page.filters.get("name")) if _fits(tool, page)]
    shown, last = keyed(page, tools, lambda tool: (tool.name, *precedence(tool.version)))
    return answer(page.answer([summary_view(tool) for tool in shown], last, total=len(tools)))


def _fits(tool: RegisteredTool, page: Page) -> bool:
    builtin, permission = page.filters.get("builtin"), page.filters.get("permission")
    if builtin not in (None, tool.builtin):
        return False
    return permission is None or permission in tool.spec.get("permissions", [])


@router.get("/{reference}", responses=documented(404, ok=schemas.Tool))
@needs(Permission.TOOLS_READ)
async def show(reference: str, behind: Behind, tenant: Tenant) -> Response:
    """By name (its newest release), `name@1`, `name@1.2` or `name@1.2.0`."""
    tool = await behind.tools.find(tenant, reference)
    return answer({**summary_view(tool), "definition": tool.definition})


@router.post("/{reference}/test", responses=documented(404, 413, 422, ok=schemas.TestedTool))
@needs(Permission.TOOLS_TEST)
async def try_out(reference: str, body: TestRequest, behind: Behind, caller: Caller) -> Response:
    """A call outside of any execution, in the sandbox of some worker. A tool that fails is an answer, not an error."""
    tool = await behind.tools.find(caller.tenant, reference)
    caller.require_tool(tool.name)
    outcome = await behind.test_tool(caller.tenant, tool, body.input, network=body.network)
    return answer({"tool": tool.name, "version": tool.version, "digest": tool.digest, **outcome})


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
