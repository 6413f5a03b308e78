"""How a definition is sent: as YAML or JSON, of a declared type, and not too large."""

import json
from typing import Any

from fastapi import Request

from agentflow import limits
from control_plane.api.errors import BodyTooLarge, UnsupportedBody

# Only declared types: a page in a browser cannot send these here without our consent (no CORS).
_TYPES = ("application/yaml", "application/json", "application/x-yaml", "text/yaml")


def definition_body(example: dict[str, Any]) -> dict[str, Any]:
    """What the document says of a definition's body; JSON is YAML, so one example does for both."""
    written = json.dumps(example, indent=2)
    content: dict[str, Any] = {kind: {"schema": {"type": "string"}, "example": written} for kind in _TYPES}
    content["application/json"] = {"schema": {"type": "object"}, "example": example}
    return {"required": True, "content": content}


async def definition_text(request: Request) -> str:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _TYPES:
        raise UnsupportedBody(content_type)
    body = await request.body()
    if len(body) > limits.DEFINITION_BYTES_MAX:
        raise BodyTooLarge(limits.DEFINITION_BYTES_MAX)
    return body.decode("utf-8", errors="replace")
