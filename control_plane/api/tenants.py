"""/api/v1/tenants: made and changed from the tenant that runs the deployment; each sees itself and its use."""

from typing import Annotated, Any

import msgspec
from fastapi import Depends, Response
from pydantic import Field

from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, keyed
from control_plane.api.people import Body
from control_plane.api.request import Behind, Caller, IdempotencyKey
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


class TenantList(schemas.ListShape):
    items: list[TenantAnswer]


class FirstAdmin(schemas.Shape):
    user: str
    api_key: str | None = Field(description="Shown this once; null where the request was sent before.")


class MadeTenant(TenantAnswer):
    admin: FirstAdmin


class Usage(schemas.Shape):
    agents: int
    workflows: int
    executions_today: int
    executions_open: int
    dollars_this_month: float
    storage_bytes: int


_LISTED = Listing(
    filters={"name": Filter("Its name."), "tier": Filter("Its tier.")},
    sorts=("id", "created_at"),
    default_sort="id",
)


@router.get("", responses=documented(422, ok=TenantList), openapi_extra=_LISTED.openapi())
@needs(Permission.TENANTS_MANAGE)
async def list_tenants(behind: Behind, page: Annotated[Page, Depends(_LISTED)]) -> dict[str, Any]:
    name, tier = page.filters.get("name"), page.filters.get("tier")
    fitting = [
        tenant
        for tenant in await behind.identity.tenants.all()
        if name in (None, tenant.name) and tier in (None, tenant.tier)
    ]
    shown, last = keyed(page, fitting, lambda one: (one.id if page.sort == "id" else one.created_at_ms, one.id))
    return page.answer([tenant_view(tenant) for tenant in shown], last, total=len(fitting))


@router.post("", status_code=201, responses=documented(409, 413, 422, ok={201: MadeTenant}))
@needs(Permission.TENANTS_MANAGE)
async def create(
    body: NewTenant, response: Response, behind: Behind, caller: Caller, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Make a tenant, with a service account to begin with: the answer is the only place where its key is shown."""
    tenants = behind.identity.tenants
    admin_id = await behind.id_for(caller.tenant, "tenants.add", key, body.model_dump(), tenants.new_admin_id())
    tenant, admin, made = await tenants.create(
        id=body.id, admin_id=admin_id, name=body.name or body.id, tier=body.tier, quotas=_quotas(body.quotas)
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = f"/api/v1/tenants/{tenant.id}"
    return {**tenant_view(tenant), "admin": {"user": admin, "api_key": None if made is None else made.text}}


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
