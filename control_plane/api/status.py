"""/api/v1/status: what kind of deployment this is, so that nobody takes one for another."""

from typing import Literal

from fastapi import Response
from pydantic import Field

from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/status", tags=["status"])


class Auth(schemas.Shape):
    required: bool = Field(description="Always: there is no setting that turns it off.")
    oidc: bool = Field(description="Whether people can log in by OpenID Connect.")
    client_certificates: bool = Field(description="Whether callers need a certificate too (mTLS).")


class Store(schemas.Shape):
    engine: Literal["sqlite", "postgresql"]
    encrypted_fields: bool = Field(description="Whether inputs and outputs are stored encrypted.")
    tls: bool
    ready: bool


class Bus(schemas.Shape):
    kind: Literal["nats"]
    local: bool = Field(description="Whether it is on the control plane's own machine.")
    tls: bool
    ready: bool


class Isolation(schemas.Shape):
    sandbox: str = Field(description="The weakest fence that these workers put around a tool.", examples=["process"])
    workers: int


class Status(schemas.Shape):
    version: str
    mode: Literal["dev", "prod"]
    auth: Auth
    store: Store
    bus: Bus
    tls: bool = Field(description="Whether this API is served under TLS.")
    isolation: list[Isolation] = Field(description="Of the workers that run your tools, as they say themselves.")


@router.get("", responses=documented(ok=Status))
@needs(Permission.SELF)
async def show(behind: Behind, tenant: Tenant) -> Response:
    about, ready = behind.setup, await behind.parts_ready()
    told = Status(
        version=about.version,
        mode=about.mode,
        auth=Auth(required=True, oidc=about.oidc, client_certificates=about.client_certificates),
        store=Store(
            engine=about.store, encrypted_fields=about.encrypted_fields, tls=about.store_tls, ready=ready["database"]
        ),
        bus=Bus(kind="nats", local=about.bus_local, tls=about.bus_tls, ready=ready["bus"]),
        tls=about.tls,
        isolation=[
            Isolation(sandbox=name, workers=count) for name, count in sorted(behind.agents.fences(tenant).items())
        ],
    )
    return answer(told.model_dump())
