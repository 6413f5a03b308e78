"""/api/v1/executions/{id}/…: what may be asked of an execution under way. Each answers with the state it led to."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from agentflow.canonical import canonical
from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.ids import ExecutionId, StepPath
from control_plane.api.executions import execution_view
from control_plane.api.request import Behind, IdempotencyKey, Tenant

router = APIRouter(prefix="/api/v1/executions/{execution}", tags=["executions"])


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


class AnswerBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: Any = Field(description="Checked against the form of the task.")


def request_id(behind: Behind, key: IdempotencyKey = None) -> str:
    """A request sent again with the same key is recorded once."""
    return key or behind.new_request_id()


RequestId = Annotated[str, Depends(request_id)]
Wanted = Callable[[Stamp], messages.Request]


def asking(execution: str, behind: Behind, tenant: Tenant) -> Callable[[Wanted], Awaitable[dict[str, Any]]]:
    async def ask(wanted: Wanted) -> dict[str, Any]:
        state = await behind.orchestrator.request(tenant, ExecutionId(execution), wanted)
        return await execution_view(behind, state)

    return ask


Ask = Annotated[Callable[[Wanted], Awaitable[dict[str, Any]]], Depends(asking)]


@router.post("/pause")
async def pause(ask: Ask, request: RequestId, body: Reason | None = None) -> dict[str, Any]:
    """Begin nothing new. Steps that run may end, and their results are kept."""
    return await ask(lambda stamp: messages.Pause(stamp, request, body.reason if body else ""))


@router.post("/resume")
async def resume(ask: Ask, request: RequestId) -> dict[str, Any]:
    return await ask(lambda stamp: messages.Resume(stamp, request))


@router.post("/cancel")
async def cancel(ask: Ask, request: RequestId, body: Reason | None = None) -> dict[str, Any]:
    """Stop in order: running steps are halted, declared compensations run, then the execution is cancelled."""
    return await ask(lambda stamp: messages.Cancel(stamp, request, body.reason if body else ""))


@router.post("/terminate")
async def terminate(ask: Ask, request: RequestId, body: Reason | None = None) -> dict[str, Any]:
    """Stop now, without undoing anything."""
    return await ask(lambda stamp: messages.Terminate(stamp, request, body.reason if body else ""))


@router.post("/signal")
async def signal(ask: Ask, request: RequestId, body: SignalBody) -> dict[str, Any]:
    """Tell an execution something. Kept until the workflow waits for a signal of that name."""
    canonical(body.payload)
    return await ask(lambda stamp: messages.Signal(stamp, request, body.name, body.payload))


@router.post("/vars")
async def update_vars(ask: Ask, request: RequestId, body: VarsBody) -> dict[str, Any]:
    canonical(body.vars)
    return await ask(lambda stamp: messages.UpdateVars(stamp, request, body.vars))


@router.post("/tasks/{path:path}/answer")
async def answer(execution: str, path: str, body: AnswerBody, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    """Answer a task that the execution has put before people."""
    state = await behind.answer(tenant, ExecutionId(execution), StepPath(path), body.answer)
    return await execution_view(behind, state)


@router.post("/retry")
async def retry(ask: Ask, request: RequestId) -> dict[str, Any]:
    """Continue a failed execution from the step that failed."""
    return await ask(lambda stamp: messages.RetryFailed(stamp, request))
