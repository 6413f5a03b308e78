"""/api/v1/executions/{id}/fork: another execution with the beginning of this one."""

from typing import Annotated, Any, Literal, Self

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentflow.ids import ExecutionId, StepPath
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.executions import started_view
from control_plane.api.guard import guarded_router, needs, principal_of
from control_plane.api.orders import RequestId
from control_plane.api.request import Behind, IdempotencyKey, Tenant
from control_plane.identity.permissions import Permission
from control_plane.orchestrator.forking import ForkWanted

router = guarded_router(prefix="/api/v1/executions/{execution}", tags=["executions"])


class ForkBody(BaseModel):
    """Exactly one of `from` and `after`; an `input` only with `from`, an `output` only with `after`."""

    model_config = ConfigDict(extra="forbid")

    from_: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, alias="from", description="The path of a step, child or task that begins anew."
    )
    after: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="The path of a step, child or task whose outcome stands; all that follows is new."
    )
    input: Any = Field(default=None, description="Another input for the step.")
    output: Any = Field(default=None, description="Another outcome, in place of the recorded one.")
    vars: dict[str, Any] | None = Field(default=None, description="New values of variables; those not named stay.")
    reason: str = Field(default="", max_length=1_000, description="Why; kept with the event.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.from_ is None) == (self.after is None):
            raise ValueError("give one of `from` and `after`")
        for edit, place in (("input", self.from_), ("output", self.after)):
            if edit in self.model_fields_set and place is None:
                raise ValueError(f"`{edit}` goes with `{'from' if edit == 'input' else 'after'}`")
        return self

    def wanted(self) -> ForkWanted:
        given = {name: getattr(self, name) for name in ("input", "output", "vars") if name in self.model_fields_set}
        going: Literal["from", "after"] = "after" if self.from_ is None else "from"
        return ForkWanted(StepPath(self.from_ or self.after or ""), going, **given, reason=self.reason)


@router.post("/fork", status_code=202, responses=documented(402, 404, 409, 422, ok={202: schemas.Started}))
@needs(Permission.WORKFLOWS_EXECUTE)
async def fork(
    execution: str,
    body: ForkBody,
    request: Request,
    behind: Behind,
    tenant: Tenant,
    asked: RequestId,
    key: IdempotencyKey = None,
) -> Response:
    """Start another execution that has this one's events up to a place, and from there on goes its own way.

    What was recorded is not done again; what was open there begins anew, under the new execution's own effect keys.
    This execution is only read.
    """
    original = await behind.orchestrator.state(tenant, ExecutionId(execution))
    if original.workflow is not None:
        await behind.require_allowed(principal_of(request), original.workflow.id)
    state = await behind.fork(tenant, original.execution, body.wanted(), request=asked, key=key)
    return answer(started_view(state), 202, {"Location": f"/api/v1/executions/{state.execution}"})
