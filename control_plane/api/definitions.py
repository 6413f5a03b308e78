"""How a definition is sent: as YAML or JSON, of a declared type, and not too large."""

from typing import Any

from fastapi import Request

from agentflow import limits
from control_plane.api.errors import BodyTooLarge, UnsupportedBody

# Only declared types: a page in a browser cannot send these here without our consent (no CORS).
_TYPES = ("application/yaml", "application/json", "application/x-yaml", "text/yaml")

DEFINITION_BODY: dict[str, Any] = {
    "required": True,
    "content": {kind: {"schema": {"type": "object" if kind == "application/json" else "string"}} for kind in _TYPES},
}


async def definition_text(request: Request) -> str:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _TYPES:
        raise UnsupportedBody(content_type)
    body = await request.body()
    if len(body) > limits.DEFINITION_BYTES_MAX:
        raise BodyTooLarge(limits.DEFINITION_BYTES_MAX)
    return body.decode("utf-8", errors="replace")
