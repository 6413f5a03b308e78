"""Is this process alive, and can it do its work? For supervisors and load balancers."""

from fastapi import Response

from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, public
from control_plane.api.request import Behind

router = guarded_router(tags=["health"])


@router.get("/healthz", responses=documented(ok=schemas.Health))
@public
async def healthz() -> Response:
    return answer({"status": "ok"})


@router.get("/readyz", responses=documented(ok={200: schemas.Readiness, 503: schemas.Readiness}))
@public
async def readyz(behind: Behind) -> Response:
    """Ready means that starts can be committed. A bus that is away is shown, but work is still accepted."""
    parts = await behind.parts_ready()
    ready = parts["database"]
    return answer({"status": "ok" if ready else "unavailable", **parts}, 200 if ready else 503)
