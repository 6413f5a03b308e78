"""/api/v1/traces/{trace}: everything that was done under one trace id, as spans."""

from typing import Any

from fastapi import Response

from agentflow.clock import rfc3339
from agentflow.execution.spans import Span
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/traces", tags=["traces"])


@router.get("/{trace}", responses=documented(404, ok=schemas.TraceView))
@needs(Permission.TRACES_READ)
async def show(trace: str, behind: Behind, tenant: Tenant) -> Response:
    """The execution that a trace id was made for, its children, their steps, attempts, waits and tool calls.

    Made from committed events and records of tools when it is asked for; ids are W3C trace context.
    """
    found = await behind.traces.find(tenant, trace)
    return answer({"trace_id": trace, "items": [_view(span) for span in found.spans], "truncated": found.truncated})


def _view(span: Span) -> dict[str, Any]:
    ended_ms = span.ended_at_ms
    return {
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "kind": span.kind,
        "name": span.name,
        "execution_id": span.execution,
        "started_at": rfc3339(span.started_at_ms),
        "ended_at": None if ended_ms is None else rfc3339(ended_ms),
        "duration_ms": None if ended_ms is None else ended_ms - span.started_at_ms,
        "status": span.status,
        "attributes": span.attributes,
    }
