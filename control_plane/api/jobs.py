"""/api/v1/jobs: long operations, and how far each is. Subscribe to a `job` at /api/v1/ws to be told as it moves."""

from typing import Any

from fastapi import Response

from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission
from control_plane.jobs.job import Job

router = guarded_router(prefix="/api/v1/jobs", tags=["jobs"])


@router.get("/{job}", responses=documented(404, ok=schemas.Job))
@needs(Permission.EXECUTIONS_READ)
async def show(job: str, behind: Behind, tenant: Tenant) -> Response:
    """How far a job is, and what came of it."""
    return job_answer(await behind.jobs.find(tenant, job))


def job_answer(job: Job, status: int = 200) -> Response:
    return answer(job_view(job), status, {"ETag": f'"{job.revision}"', "Location": f"/api/v1/jobs/{job.id}"})


def job_view(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "job_id": job.id,
        "kind": job.kind,
        "status": job.status,
        "done": job.done,
        "total": job.total,
        "result": job.result,
        "error": job.error,
        "created_at": rfc3339(job.created_at_ms),
        "updated_at": rfc3339(job.updated_at_ms),
    }
