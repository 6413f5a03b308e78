"""/api/v1/workflows/{reference}/replay: recorded executions decided again, without touching anything outside."""

from typing import Annotated, Any

import msgspec
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.contracts.claims import builtins
from agentflow.execution.events import Event
from agentflow.ids import ExecutionId, TenantId
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.jobs import job_answer
from control_plane.api.request import Behind, IdempotencyKey, Tenant
from control_plane.identity.permissions import Permission
from control_plane.replay.many import ReplayRequest, summary
from control_plane.replay.replayer import Replayed
from control_plane.replaying import JOB
from control_plane.service import ControlPlane
from control_plane.snapshots.snapshot import SNAPSHOT_ID

router = guarded_router(prefix="/api/v1/workflows", tags=["workflows"])


class ReplayBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"last": 50, "against": "1.1.0"}]}
    )  # fmt: skip

    executions: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default=[],
        max_length=limits.REPLAYS_PER_JOB_MAX,
        description="These, or snapshots (`snap_…`); without any, the `last` ones.",
    )
    last: int = Field(
        default=limits.REPLAYS_BEFORE_DEPLOYMENT,
        ge=1,
        le=limits.REPLAYS_PER_JOB_MAX,
        description="So many of the newest that are over, of whatever version.",
    )
    against: str | None = Field(
        default=None,
        max_length=128,
        description="A version to decide by, such as `1.1.0`; without it, each by the one it is pinned to.",
    )
    definition: str | None = Field(
        default=None,
        max_length=limits.DEFINITION_BYTES_MAX,
        description="A definition to decide by that is not registered, in YAML or JSON.",
    )


@router.post(
    "/{reference}/replay",
    responses=documented(404, 409, 413, 422, ok={200: schemas.Replay, 202: schemas.Job}),
)
@needs(Permission.EXECUTIONS_READ)
async def replay(
    reference: str, body: ReplayBody, behind: Behind, tenant: Tenant, key: IdempotencyKey = None
) -> Response:
    """One execution is replayed at once; several, or one with a very long history, as a job (202).

    What was recorded is decided again, by its own version or by another, and held against the record event by event:
    no worker is asked, no tool is called, results and times come from the record.
    """
    workflow = await behind.registry.find(tenant, reference)
    wanted = ReplayRequest(
        workflow=workflow.name,
        executions=tuple(body.executions),
        last=body.last,
        against=body.against,
        definition=body.definition,
    )
    if wanted.against is not None or wanted.definition is not None:
        await behind.replays.candidate(tenant, wanted)  # what is wrong with it is told now, and not by a job
    alone = len(wanted.executions) == 1
    if alone and await _length(behind, tenant, wanted.executions[0]) <= limits.LOOKED_BACK_EVENTS_MAX:
        return answer(await _replay_view(behind, tenant, await behind.replays.one(tenant, wanted)))
    return job_answer(await behind.submit(tenant, JOB, msgspec.to_builtins(wanted), key), 202)


async def _length(behind: ControlPlane, tenant: TenantId, name: str) -> int:
    """How many events there are under an id."""
    if name.startswith(SNAPSHOT_ID):
        return (await behind.snapshots.find(tenant, name)).version
    return (await behind.orchestrator.state(tenant, ExecutionId(name))).version


async def _replay_view(behind: ControlPlane, tenant: TenantId, found: Replayed) -> dict[str, Any]:
    view = summary(found)
    off = found.divergence
    if off is None:
        return view
    sides = {"expected_data": _data(off.expected), "got_data": _data(off.got)}
    view["divergence"] |= await behind.claims.whole(found.shelf, sides)
    return view


def _data(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    data: dict[str, Any] = builtins(event)
    return {name: value for name, value in data.items() if name not in ("type", "at_ms")}
