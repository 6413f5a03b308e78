"""/api/v1/executions/{execution}/move: let an execution go on by another version of its workflow, or see whether."""

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow.canonical import ensure_canonical
from agentflow.ids import ExecutionId, TenantId
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.executions import execution_answer
from control_plane.api.guard import guarded_router, needs
from control_plane.api.orders import RequestId
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission
from control_plane.orchestrator.moves import MoveWanted
from control_plane.service import ControlPlane

router = guarded_router(prefix="/api/v1/executions/{execution}", tags=["executions"])
_Name = Annotated[str, Field(min_length=1, max_length=128)]


class MoveBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str = Field(min_length=1, max_length=128, description="A version of its workflow.", examples=["1.1.0"])
    rename: dict[_Name, _Name] = Field(
        default={}, max_length=100, description="Variables by their new names, with the old ones."
    )
    vars: dict[_Name, Any] = Field(default={}, max_length=100, description="Variables with the values they are given.")
    reason: str = Field(default="", max_length=1_000, description="Kept with the event.")


@router.post("/move", responses=documented(404, 409, 422, ok=schemas.Execution))
@needs(Permission.EXECUTIONS_CONTROL)
async def move(execution: str, body: MoveBody, behind: Behind, tenant: Tenant, request: RequestId) -> Response:
    """Pin the execution to another version from here on. Refused (409) where it stands at something that the version
    does not have, or where variables must be mapped; then nothing has changed."""
    ensure_canonical(body.vars)
    wanted = await _wanted(behind, tenant, execution, body)
    state = await behind.move(tenant, ExecutionId(execution), wanted, request=request)
    return await execution_answer(behind, state)


@router.post("/move/check", responses=documented(404, 422, ok=schemas.MoveVerdict))
@needs(Permission.EXECUTIONS_READ)
async def check(execution: str, body: MoveBody, behind: Behind, tenant: Tenant) -> Response:
    """What a move would meet as the execution stands now. Nothing is changed."""
    ensure_canonical(body.vars)
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    found = await behind.judge_move(state, await _wanted(behind, tenant, execution, body))
    return answer(
        {
            "execution_id": execution,
            "to": body.to,
            "verdict": found.verdict,
            "misfits": [
                {"node": one.node, "key": one.key, "reason": one.why, "can_be_mapped": one.can_be_mapped}
                for one in found.misfits
            ],
            "vars": found.vars,
        }
    )


async def _wanted(behind: ControlPlane, tenant: TenantId, execution: str, body: MoveBody) -> MoveWanted:
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    assert state.workflow is not None, "an execution that can be found has started"
    workflow = await behind.registry.find(tenant, f"{state.workflow.name}@{body.to}")
    return MoveWanted(await behind.registry.ref(tenant, workflow), body.rename, body.vars, body.reason)
