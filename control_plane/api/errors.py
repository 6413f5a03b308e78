"""The one place where our errors become HTTP answers: problem details (RFC 9457), never a stack trace."""

import math
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from agentflow import limits
from agentflow.errors import (
    AgentFlowError,
    Bug,
    Conflict,
    Forbidden,
    Invalid,
    Limited,
    NotFound,
    OverBudget,
    Problem,
    Rejected,
    Unauthenticated,
    Unavailable,
)
from control_plane.costs.book import BudgetChanged
from control_plane.registry.workflows import WorkflowOvertaken

_log = structlog.get_logger(__name__)

# The first family that fits decides; the order goes from special to general.
STATUS_OF_FAMILY: tuple[tuple[type[AgentFlowError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (Invalid, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (OverBudget, HTTPStatus.PAYMENT_REQUIRED),
    (Limited, HTTPStatus.TOO_MANY_REQUESTS),
    (Rejected, HTTPStatus.BAD_REQUEST),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (Bug, HTTPStatus.INTERNAL_SERVER_ERROR),
)

_RETRY_AFTER_S = "1"


class UnsupportedBody(Rejected):
    code = "AF1008"

    def __init__(self, content_type: str) -> None:
        super().__init__(
            f"A body of type {content_type or 'unknown'!r} is not read here.",
            hint="Send Content-Type: application/yaml or application/json.",
        )


class BodyTooLarge(Rejected):
    code = "AF1009"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes.", hint="Send less, or send a reference to it.")


class NotAcceptable(Rejected):
    code = "AF1011"

    def __init__(self, accepted: str) -> None:
        super().__init__(
            f"This server cannot answer as {accepted[:200]!r}.",
            hint="Accept application/vnd.agentflow.v1+json or application/json.",
        )


class ResourceChanged(Conflict):
    code = "AF1013"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not as `If-Match` says any more. Nothing was changed.",
            hint="Read it again, look at what changed, and send the request with the new ETag.",
        )


_STATUS_OF_ERROR: dict[type[AgentFlowError], HTTPStatus] = {
    UnsupportedBody: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    ResourceChanged: HTTPStatus.PRECONDITION_FAILED,
    BudgetChanged: HTTPStatus.PRECONDITION_FAILED,
    WorkflowOvertaken: HTTPStatus.PRECONDITION_FAILED,
}


def status_of(error: AgentFlowError) -> HTTPStatus:
    exact = _STATUS_OF_ERROR.get(type(error))
    return exact or next(status for family, status in STATUS_OF_FAMILY if isinstance(error, family))


def problem_response(error: AgentFlowError) -> JSONResponse:
    status = status_of(error)
    problems = error.problems if isinstance(error, Invalid) else ()
    return _problem(status, error.code, error.message, error.hint, problems, _headers(error))


def _headers(error: AgentFlowError) -> dict[str, str] | None:
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": 'Bearer realm="agentflow"'}
    if isinstance(error, Limited):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    return {"Retry-After": _RETRY_AFTER_S} if error.retryable else None


def answer_to(error: AgentFlowError) -> JSONResponse:
    """What somebody is told whose request raised this; a fault of ours is told to the log as well."""
    if isinstance(error, Bug):
        _log.error("request.bug", code=error.code, reason=error.message)
    return problem_response(error)


def malformed(faults: Iterable[Mapping[str, Any]]) -> Invalid:
    """What pydantic found in a request, as one error."""
    problems = [Problem(message=fault["msg"], path=".".join(str(part) for part in fault["loc"])) for fault in faults]
    return Invalid("The request is not what this operation takes.", hint="See /api/v1/openapi.json.", problems=problems)


def install(app: FastAPI) -> None:
    @app.exception_handler(AgentFlowError)
    async def ours(_: Request, error: AgentFlowError) -> JSONResponse:
        return answer_to(error)

    @app.exception_handler(RequestValidationError)
    async def not_ours(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(malformed(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        hint = "See /api/v1/openapi.json for what there is."
        return _problem(status, f"HTTP{status.value}", str(error.detail), hint, (), error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        _log.error("request.crashed", path=request.url.path, exc_info=error)
        return problem_response(Bug("The request failed because of a fault in AgentFlow."))


class ProblemDetails(BaseModel):
    """RFC 9457, with members of our own: the code that docs/errors explains, what to do, and each fault's place."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    problems: list[dict[str, Any]] | None = None


def _problem(
    status: HTTPStatus,
    code: str,
    detail: str,
    hint: str,
    problems: Sequence[Problem],
    headers: Any = None,
) -> JSONResponse:
    body: dict[str, Any] = {
        "type": f"urn:agentflow:error:{code}",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": code,
        "hint": hint,
    }
    if problems:
        body["problems"] = msgspec.to_builtins(list(problems)[: limits.PROBLEMS_SHOWN_MAX])
    return JSONResponse(body, status, headers=headers, media_type="application/problem+json")
