"""/api/v1/openapi.json: this API as a document."""

from typing import Any

from fastapi import Request

from control_plane.api.guard import guarded_router, needs
from control_plane.identity.permissions import Permission

router = guarded_router(tags=["document"])


@router.get("/api/v1/openapi.json", include_in_schema=False)
@needs(Permission.SELF)
async def openapi(request: Request) -> dict[str, Any]:
    described: dict[str, Any] = request.app.openapi()
    return described
