"""What every route may ask for: the control plane behind it, and whom the caller acts for."""

from typing import Annotated, cast

from fastapi import Depends, Header, Request

from agentflow.ids import DEFAULT_TENANT, TenantId
from control_plane.service import ControlPlane


def control_plane_of(request: Request) -> ControlPlane:
    return cast(ControlPlane, request.app.state.control_plane)


def tenant_of(_: Request) -> TenantId:
    """One tenant until identity arrives; every room below already takes it."""
    return DEFAULT_TENANT


IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
Behind = Annotated[ControlPlane, Depends(control_plane_of)]
Tenant = Annotated[TenantId, Depends(tenant_of)]
