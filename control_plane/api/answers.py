"""Answers as JSON, and what the OpenAPI document says about them.

Answers are built from our own values, so nothing checks them a second time on their way out: the shapes in `schemas`
are what the document promises, and tests hold the answers against it.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Response
from pydantic import BaseModel

from control_plane.api.errors import ProblemDetails

_encode = msgspec.json.Encoder().encode


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, media_type="application/json")


_ERRORS: dict[int, str] = {
    400: "The request cannot be done as it is; `code` and `hint` say why and what to do.",
    401: "Nobody knows who asks: send `Authorization: Bearer` with a token or an API key.",
    402: "A budget that covers it is used up; `detail` names it and `hint` says how to go on.",
    403: "Your roles do not allow it.",
    404: "There is no such thing for this tenant.",
    406: "The version named in `Accept` is unknown.",
    409: "It contradicts what is recorded.",
    412: "It is not as `If-Match` says any more: read it again.",
    413: "The body is too large.",
    415: "The body is of a type that is not read here.",
    422: "The input is wrong; `problems` names every fault with its place.",
    429: "Too much or too often; send it again after `Retry-After`.",
    503: "Something it needs is away; send it again after `Retry-After`.",
}
# A wrong Host header, no right to ask, an unknown version, a limit, a database that is away.
_ALWAYS = (400, 401, 403, 406, 429, 503)


def documented(
    *errors: int, ok: type[BaseModel] | Mapping[int, type[BaseModel]], example: Any = None
) -> dict[int | str, dict[str, Any]]:
    """Everything an operation may answer with: its results by status, and each error as problem details."""
    results = ok if isinstance(ok, Mapping) else {200: ok}
    found: dict[int | str, dict[str, Any]] = {}
    for status, model in results.items():
        found[status] = {"model": model, "description": HTTPStatus(status).phrase}
        if example is not None:
            found[status]["content"] = {"application/json": {"example": example}}
    for status in sorted({*errors, *_ALWAYS}):
        found[status] = problem_answer(status)
    return found


def problem_answer(status: int) -> dict[str, Any]:
    """An error as the document shows it."""
    example = ProblemDetails(
        type="urn:agentflow:error:AF1000",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_ERRORS[status],
        code="AF1000",
        hint="See docs/errors for this code.",
    )
    shown = {
        "schema": {"$ref": "#/components/schemas/ProblemDetails"},
        "example": example.model_dump(exclude_none=True),
    }
    return {"description": _ERRORS[status], "content": {"application/problem+json": shown}}
