"""/api/v1/tenants: made and changed from the tenant that runs the deployment; each sees itself and its use."""

from typing import Annotated, Any

import msgspec
from fastapi import Response
from pydantic import Field

from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.people import Body
from control_plane.api.request import Behind, Caller
from control_plane.identity.permissions import Permission
from control_plane.identity.tenants import Quotas, Tenant

router = guarded_router(prefix="/api/v1/tenants", tags=["tenants"])

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Name = Annotated[str, Field(min_length=1, max_length=128)]


class QuotasBody(Body):
    """What is left out has no limit."""

    agents: _Count | None = Field(default=None, description="Different ones that its workflows name.")
    workflows: _Count | None = Field(default=None, description="By name; versions are free.")
    executions_per_day: _Count | None = Field(default=None, description="Begun since midnight UTC.")
    executions_at_once: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        default=None, description="More are queued."
    )
    dollars_per_month: Annotated[float, Field(ge=0, le=1e12)] | None = None
    storage_bytes: _Count | None = None


class NewTenant(Body):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", examples=["acme"])
    name: _Name | None = None
    tier: _Name = "standard"
    quotas: QuotasBody = QuotasBody()


class ChangedTenant(Body):
    """What is left out stays."""

    name: _Name | None = None
    tier: _Name | None = None
    quotas: QuotasBody | None = None


class TenantAnswer(schemas.Shape):
    id: str
    name: str
    tier: str
    quotas: QuotasBody
    created_at: str


class TenantList(schemas.Shape):
    items: list[TenantAnswer]
    total_count: int


class FirstAdmin(schemas.Shape):
    user: str
    api_key: str = Field(description="Shown this once.")


class MadeTenant(TenantAnswer):
    admin: FirstAdmin


class Usage(schemas.Shape):
    agents: int
    workflows: int
    executions_today: int
    executions_open: int
    dollars_this_month: float
    storage_bytes: int


@router.get("", responses=documented(ok=TenantList))
@needs(Permission.TENANTS_MANAGE)
async def list_tenants(behind: Behind) -> dict[str, Any]:
    found = await behind.identity.tenants.all()
    return {"items": [tenant_view(tenant) for tenant in found], "total_count": len(found)}


@router.post("", status_code=201, responses=documented(409, 413, 422, ok={201: MadeTenant}))
@needs(Permission.TENANTS_MANAGE)
async def create(body: NewTenant, response: Response, behind: Behind) -> dict[str, Any]:
    """Make a tenant, with a service account to begin with: the answer is the only place where its key is shown."""
    tenant, admin, made = await behind.identity.tenants.create(
        id=body.id, name=body.name or body.id, tier=body.tier, quotas=_quotas(body.quotas)
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = f"/api/v1/tenants/{tenant.id}"
    return {**tenant_view(tenant), "admin": {"user": admin.id, "api_key": made.text}}


@router.get("/{tenant}", responses=documented(404, ok=TenantAnswer))
@needs(Permission.TENANT_READ)
async def show(tenant: str, behind: Behind, caller: Caller) -> dict[str, Any]:
    return tenant_view(await behind.identity.tenants.show(caller, tenant))


@router.get("/{tenant}/usage", responses=documented(404, ok=Usage))
@needs(Permission.TENANT_READ)
async def usage(tenant: str, behind: Behind, caller: Caller) -> dict[str, Any]:
    used: dict[str, Any] = msgspec.to_builtins(await behind.identity.tenants.use(caller, tenant))
    return used


@router.patch("/{tenant}", responses=documented(404, 413, 422, ok=TenantAnswer))
@needs(Permission.TENANTS_MANAGE)
async def change(tenant: str, body: ChangedTenant, behind: Behind, caller: Caller) -> dict[str, Any]:
    """`quotas` are given as a whole: what is not among them has no limit from now on."""
    quotas = None if body.quotas is None else _quotas(body.quotas)
    changed = await behind.identity.tenants.change(caller, tenant, name=body.name, tier=body.tier, quotas=quotas)
    return tenant_view(changed)


def _quotas(body: QuotasBody) -> Quotas:
    return msgspec.convert(body.model_dump(), Quotas)


def tenant_view(tenant: Tenant) -> dict[str, Any]:
    return {
        "id": tenant.id,
        "name": tenant.name,
        "tier": tenant.tier,
        "quotas": {name: getattr(tenant.quotas, name) for name in Quotas.__struct_fields__},
        "created_at": rfc3339(tenant.created_at_ms),
    }
