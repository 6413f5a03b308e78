"""Is this process alive, and can it do its work? For supervisors and load balancers."""

from typing import Any

from fastapi import APIRouter, Response

from control_plane.api.request import Behind

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, Any]:
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(response: Response, behind: Behind) -> dict[str, Any]:
    """Ready means that starts can be committed. A bus that is away is shown, but work is still accepted."""
    parts = await behind.parts_ready()
    ready = parts["database"]
    response.status_code = 200 if ready else 503
    return {"status": "ok" if ready else "unavailable", **parts}
