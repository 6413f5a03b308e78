"""/api/v1/platform: what who runs the deployment may ask of all of it."""

import msgspec
from fastapi import Response
from pydantic import Field

from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.orders import Reason, RequestId
from control_plane.api.request import Behind, Caller
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/platform", tags=["platform"])


class Asked(schemas.Shape):
    executions: int = Field(description="How many were paused, or went on.")
    tenants: int = Field(description="Of how many tenants.")


@router.post("/pause", responses=documented(422, ok=Asked))
@needs(Permission.TENANTS_MANAGE)
async def pause(behind: Behind, caller: Caller, request: RequestId, body: Reason | None = None) -> Response:
    """Pause every execution that runs now, of every tenant. Steps that run may end, and their results are kept.

    Executions that are queued, or started later, are not paused.
    """
    return answer(msgspec.to_builtins(await behind.pausing.pause(caller, request, body.reason if body else "")))


@router.post("/resume", responses=documented(ok=Asked))
@needs(Permission.TENANTS_MANAGE)
async def resume(behind: Behind, caller: Caller, request: RequestId) -> Response:
    """Let go on what was paused by `pause`. What a tenant has paused itself stays so."""
    return answer(msgspec.to_builtins(await behind.pausing.resume(caller, request)))
