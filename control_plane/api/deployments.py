"""/api/v1/deployments: register a version once it has been tried on the executions that its workflow has had."""

from typing import Annotated, Any

import msgspec
from fastapi import Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.jobs import job_answer
from control_plane.api.listing import Listing, Page, keyed
from control_plane.api.request import Behind, Caller, IdempotencyKey, Tenant
from control_plane.audit.notes import concerning
from control_plane.deploying import JOB, Deployment, DeploymentRequest
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1", tags=["workflows"])


class DeploymentBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    definition: str = Field(
        min_length=1, max_length=limits.DEFINITION_BYTES_MAX, description="A workflow in YAML or JSON."
    )
    last: int = Field(
        default=limits.REPLAYS_BEFORE_DEPLOYMENT,
        ge=0,
        le=limits.REPLAYS_PER_JOB_MAX,
        description="On how many of the newest executions that are over it is tried.",
    )
    accept_divergence: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Register it although executions would have gone another way; why, is kept with the version.",
    )


@router.post("/deployments", status_code=202, responses=documented(409, 413, 422, ok={202: schemas.Job}))
@needs(Permission.WORKFLOWS_WRITE)
async def deploy(
    body: DeploymentBody, behind: Behind, tenant: Tenant, caller: Caller, key: IdempotencyKey = None
) -> Response:
    """A job: decide the last executions of the workflow again by this version, then register it.

    Its result says `registered: false`, with every execution that would have gone another way, unless that is accepted.
    """
    ref, _, _ = await behind.registry.candidate(body.definition)  # what is wrong with it is told now
    wanted = DeploymentRequest(
        definition=body.definition,
        workflow=ref.name,
        by=caller.id,
        last=body.last,
        accept_divergence=body.accept_divergence,
    )
    accepted = {} if body.accept_divergence is None else {"accepted_divergence": body.accept_divergence}
    concerning("workflow", f"{ref.name}@{ref.version}", digest=ref.digest, **accepted)
    return job_answer(await behind.submit(tenant, JOB, msgspec.to_builtins(wanted), key), 202)


_LISTED = Listing(filters={}, sorts=("at",), default_sort="-at")


@router.get(
    "/workflows/{reference}/deployments",
    responses=documented(404, 422, ok=schemas.DeploymentList),
    openapi_extra=_LISTED.openapi(),
)
@needs(Permission.WORKFLOWS_READ)
async def list_deployments(
    reference: str, behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]
) -> Response:
    """How the versions of a workflow came to be registered, newest first; not those pushed without a trial."""
    workflow = await behind.registry.find(tenant, reference)
    found = await behind.deployments.of_workflow(tenant, workflow.name, limit=limits.VERSIONS_LISTED_MAX)
    shown, last = keyed(page, found, lambda deployment: (deployment.at_ms, deployment.workflow_id))
    return answer(page.answer([_view(deployment) for deployment in shown], last, total=len(found)))


def _view(deployment: Deployment) -> dict[str, Any]:
    return {
        "workflow_id": deployment.workflow_id,
        "name": deployment.name,
        "version": deployment.version,
        "by": deployment.by,
        "replayed": deployment.replayed,
        "diverged": deployment.diverged,
        "reason": deployment.reason,
        "at": rfc3339(deployment.at_ms),
    }
