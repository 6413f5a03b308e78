"""The one place where our errors become gRPC statuses: google.rpc.Status, with the details every client knows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

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
    Rejected,
    Unauthenticated,
    Unavailable,
)
from control_plane.audit import notes

_log = structlog.get_logger(__name__)

# The first family that fits decides; the order goes from special to general.
STATUS_OF_FAMILY: tuple[tuple[type[AgentFlowError], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (OverBudget, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Limited, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Rejected, grpc.StatusCode.FAILED_PRECONDITION),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (Bug, grpc.StatusCode.INTERNAL),
)

_DOMAIN = "agentflow"
_DETAILS = "grpc-status-details-bin"  # where every client library looks for them
_RETRY_AFTER_S = 1.0


def status_of(error: AgentFlowError) -> grpc.StatusCode:
    return next(status for family, status in STATUS_OF_FAMILY if isinstance(error, family))


def metadata_of(error: AgentFlowError) -> tuple[tuple[str, str | bytes], ...]:
    """What is sent behind a refused call: our code, and the whole status with its details."""
    number: int = status_of(error).value[0]
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.code, domain=_DOMAIN, metadata={"hint": error.hint})
    ]
    if isinstance(error, Invalid) and error.problems:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=problem.path, description=str(problem))
            for problem in error.problems[: limits.PROBLEMS_SHOWN_MAX]
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if error.retryable:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(_wait_s(error) * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=number, message=error.message, details=[_packed(each) for each in details])
    return ("af-code", error.code), (_DETAILS, status.SerializeToString())


def _wait_s(error: AgentFlowError) -> float:
    return error.retry_after_s if isinstance(error, Limited) else _RETRY_AFTER_S


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


@asynccontextmanager
async def answering(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Ends the call with the status, the sentence and the details of whatever goes wrong inside."""
    try:
        yield
    except AgentFlowError as error:
        if isinstance(error, Forbidden):
            notes.refused()
        await context.abort(status_of(error), str(error), metadata_of(error))
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception:  # noqa: BLE001 - whatever it is, the caller gets a status and we get the log
        _log.exception("call.crashed")
        bug = Bug("The call failed because of a fault in AgentFlow.")
        await context.abort(status_of(bug), str(bug), metadata_of(bug))
