"""The one place where our errors become gRPC statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog

from agentflow.errors import (
    AgentFlowError,
    Bug,
    Conflict,
    Forbidden,
    Invalid,
    Limited,
    NotFound,
    Rejected,
    Unauthenticated,
    Unavailable,
)

_log = structlog.get_logger(__name__)

# The first family that fits decides; the order goes from special to general.
STATUS_OF_FAMILY: tuple[tuple[type[AgentFlowError], grpc.StatusCode], ...] = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (Limited, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Rejected, grpc.StatusCode.FAILED_PRECONDITION),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (Bug, grpc.StatusCode.INTERNAL),
)


def status_of(error: AgentFlowError) -> grpc.StatusCode:
    return next(status for family, status in STATUS_OF_FAMILY if isinstance(error, family))


@asynccontextmanager
async def answering(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Ends the call with the status and sentence of whatever goes wrong inside; our code rides in `af-code`."""
    try:
        yield
    except AgentFlowError as error:
        await context.abort(status_of(error), str(error), (("af-code", error.code),))
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception:  # noqa: BLE001 - whatever it is, the caller gets a status and we get the log
        _log.exception("call.crashed")
        bug = Bug("The call failed because of a fault in AgentFlow.")
        await context.abort(status_of(bug), str(bug), (("af-code", bug.code),))
