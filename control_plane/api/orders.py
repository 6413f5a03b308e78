"""/api/v1/executions/{id}/…: what may be asked of an execution under way. Each answers with the state it led to."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.canonical import canonical
from agentflow.errors import Conflict
from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.ids import ExecutionId, StepPath
from agentflow.ports import VersionConflict
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.errors import ResourceChanged
from control_plane.api.executions import execution_answer
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, IdempotencyKey, IfMatch, Tenant
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/executions/{execution}", tags=["executions"])


class Reason(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1_000, description="Why; kept with the event.")


class SignalBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=128, description="What a `wait` of the workflow waits for.")
    payload: Any = Field(default=None, description="Handed to whoever waits for it.")


class VarsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    vars: dict[str, Any] = Field(description="New values by name; variables that are not named stay.")


class BreakpointsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    at: list[Annotated[str, Field(min_length=1, max_length=512)]] = Field(
        max_length=limits.BREAKPOINTS_MAX,
        description="States of a machine or paths of nodes of a tree (`tree/0/fix`), in place of those before.",
    )


class AnswerBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: Any = Field(description="Checked against the form of the task.")


def request_id(behind: Behind, key: IdempotencyKey = None) -> str:
    """A request sent again with the same key is recorded once."""
    return key or behind.new_request_id()


RequestId = Annotated[str, Depends(request_id)]
Wanted = Callable[[Stamp], messages.Request]


def asking(
    execution: str, behind: Behind, tenant: Tenant, if_match: IfMatch = None
) -> Callable[[Wanted], Awaitable[Response]]:
    """With `If-Match`, the order counts only for the execution as the caller has seen it."""

    async def ask(wanted: Wanted) -> Response:
        seen = version_seen(if_match, execution)
        try:
            state = await behind.orchestrator.request(tenant, ExecutionId(execution), wanted, only_at=seen)
        except Conflict as conflict:
            if seen is not None and conflict.code == VersionConflict.code:  # also where another replica found it out
                raise ResourceChanged(f"Execution {execution}") from None
            raise
        return await execution_answer(behind, state)

    return ask


def version_seen(if_match: str | None, execution: str) -> int | None:
    """The version in the ETag of an execution; what is no such ETag cannot be of any execution."""
    if if_match is None or if_match.strip() == "*":
        return None
    number = if_match.strip().strip('"').removesuffix("-gzip")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise ResourceChanged(f"Execution {execution}")
    return int(number)


_ANSWERS = documented(404, 409, 412, 422, ok=schemas.Execution)
_GOING_ON = documented(402, 404, 409, 412, 422, ok=schemas.Execution)

Ask = Annotated[Callable[[Wanted], Awaitable[Response]], Depends(asking)]


@router.post("/pause", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def pause(ask: Ask, request: RequestId, body: Reason | None = None) -> Response:
    """Begin nothing new. Steps that run may end, and their results are kept."""
    return await ask(lambda stamp: messages.Pause(stamp, request, body.reason if body else ""))


@router.post("/resume", responses=_GOING_ON)
@needs(Permission.EXECUTIONS_CONTROL)
async def resume(ask: Ask, request: RequestId) -> Response:
    """Refused while a budget that covers what comes next is used up: it goes on by itself once there is more."""
    return await ask(lambda stamp: messages.Resume(stamp, request))


@router.post("/cancel", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def cancel(ask: Ask, request: RequestId, body: Reason | None = None) -> Response:
    """Stop in order: running steps are halted, declared compensations run, then the execution is cancelled."""
    return await ask(lambda stamp: messages.Cancel(stamp, request, body.reason if body else ""))


@router.post("/terminate", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def terminate(ask: Ask, request: RequestId, body: Reason | None = None) -> Response:
    """Stop now, without undoing anything."""
    return await ask(lambda stamp: messages.Terminate(stamp, request, body.reason if body else ""))


@router.post("/signal", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def signal(ask: Ask, request: RequestId, body: SignalBody) -> Response:
    """Tell an execution something. Kept until the workflow waits for a signal of that name."""
    canonical(body.payload)
    return await ask(lambda stamp: messages.Signal(stamp, request, body.name, body.payload))


@router.post("/vars", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def update_vars(ask: Ask, request: RequestId, body: VarsBody) -> Response:
    canonical(body.vars)
    return await ask(lambda stamp: messages.UpdateVars(stamp, request, body.vars))


@router.post("/breakpoints", responses=_ANSWERS)
@needs(Permission.EXECUTIONS_CONTROL)
async def set_breakpoints(ask: Ask, request: RequestId, body: BreakpointsBody) -> Response:
    """Pause the execution before anything at these places begins; `resume` goes on to the next."""
    return await ask(lambda stamp: messages.SetBreakpoints(stamp, request, tuple(body.at)))


@router.post("/tasks/{path:path}/answer", responses=_ANSWERS)
@needs(Permission.TASKS_ANSWER)
async def answer(execution: str, path: str, body: AnswerBody, behind: Behind, tenant: Tenant) -> Response:
    """Answer a task that the execution has put before people."""
    state = await behind.answer(tenant, ExecutionId(execution), StepPath(path), body.answer)
    return await execution_answer(behind, state)


@router.post("/retry", responses=_GOING_ON)
@needs(Permission.EXECUTIONS_CONTROL)
async def retry(ask: Ask, request: RequestId) -> Response:
    """Continue a failed execution from the step that failed."""
    return await ask(lambda stamp: messages.RetryFailed(stamp, request))
