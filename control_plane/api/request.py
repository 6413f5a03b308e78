"""What every route may ask for: the control plane behind it, and whom the caller acts for."""

from typing import Annotated, cast

from fastapi import Depends, Header, Request
from starlette.requests import HTTPConnection

from agentflow.ids import TenantId
from control_plane.api.errors import malformed
from control_plane.api.guard import principal_of
from control_plane.identity.principals import Principal
from control_plane.service import ControlPlane


# All are coroutines because FastAPI gives anything else a thread of its own, which takes longer than the request.
async def control_plane_of(request: HTTPConnection) -> ControlPlane:
    return cast(ControlPlane, request.app.state.control_plane)


async def caller_of(request: HTTPConnection) -> Principal:
    return principal_of(request)


async def tenant_of(request: HTTPConnection) -> TenantId:
    """Never anything the caller says: the tenant of whoever they have proved to be."""
    return principal_of(request).tenant


_KEY_CHARS_MAX = 255

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=_KEY_CHARS_MAX)]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=255, description="Only if it still has this ETag; 412 otherwise."),
]
Behind = Annotated[ControlPlane, Depends(control_plane_of)]
Caller = Annotated[Principal, Depends(caller_of)]
Tenant = Annotated[TenantId, Depends(tenant_of)]


def key_of(request: Request) -> str | None:
    """The `IdempotencyKey`, for who comes past the framework."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= _KEY_CHARS_MAX:
        length = f"A key has 1 to {_KEY_CHARS_MAX} characters."
        raise malformed([{"msg": length, "loc": ("header", "Idempotency-Key")}])
    return key
