"""The control plane's problem details as our own errors again, so that a caller catches families, not numbers."""

from typing import TypeVar

import msgspec

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
from agentflow.sdk.models import ProblemDetails

_Family = TypeVar("_Family", bound=AgentFlowError)


class ControlPlaneAway(Unavailable):
    code = "AF1510"

    def __init__(self, api_url: str, reason: str) -> None:
        super().__init__(
            f"No control plane answers at {api_url}: {reason}.",
            hint="Start one with `af dev`, or set AF_API_URL to where it runs.",
        )


class NotAgentFlow(Unavailable):
    code = "AF1511"

    def __init__(self, api_url: str, reason: str) -> None:
        super().__init__(
            f"What answers at {api_url} does not speak this API: {reason}.",
            hint="Check that AF_API_URL names an AgentFlow control plane of this version, not another server.",
        )


class NoTrust(Rejected):
    code = "AF1512"

    def __init__(self, api_url: str, reason: str) -> None:
        super().__init__(
            f"{api_url} and this client do not trust each other: {reason}.",
            hint="Name its authority with `af --ca FILE` or AF_TLS_CA_FILE; where it asks for a certificate of yours, "
            "set AF_TLS_CERT_FILE and AF_TLS_KEY_FILE.",
        )


def error_from(api_url: str, status: int, body: bytes, retry_after_s: float = 1.0) -> AgentFlowError:
    """The error that an answer with a status of 400 or more stands for."""
    try:
        told = msgspec.json.decode(body, type=ProblemDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if status in (502, 503, 504):  # a proxy speaking for a control plane that is not there
            return ControlPlaneAway(api_url, f"HTTP status {status}")
        return NotAgentFlow(api_url, f"HTTP status {status} without problem details")
    message = told.detail or told.title
    hint = told.hint or "Correct the request and send it again."
    if status == 401:
        return _with_code(Unauthenticated, told.code)(message, hint=hint)
    if status == 402:
        return _with_code(OverBudget, told.code)(message, hint=hint)
    if status == 403:
        return _with_code(Forbidden, told.code)(message, hint=hint)
    if status == 404:
        return _with_code(NotFound, told.code)(message, hint=hint)
    if status == 409:
        return _with_code(Conflict, told.code)(message, hint=hint)
    if status == 429:
        return _with_code(Limited, told.code)(message, hint=hint, retry_after_s=retry_after_s)
    if status < 500:
        return _with_code(Invalid, told.code)(message, hint=hint, problems=told.problems)
    if status in (502, 503, 504):
        return _with_code(Unavailable, told.code)(message, hint=hint)
    return _with_code(Bug, told.code)(
        message, hint=told.hint or "Look into the control plane's log; report it with the log around it."
    )


def _with_code(family: type[_Family], code: str) -> type[_Family]:
    """The family, under the code the server gave, which is the page a person will want to read."""
    return type(family.__name__, (family,), {"code": code})
