"""/api/v1/executions/{id}/snapshots and /api/v1/snapshots: the immutable records of executions."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, Header, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.exchange import matches
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, moment
from control_plane.api.looking_back import NoSuchVersion
from control_plane.api.request import Behind, IdempotencyKey, Tenant
from control_plane.identity.permissions import Permission
from control_plane.snapshots.snapshot import Snapshot, SnapshotFilter, SnapshotPlace

router = guarded_router(prefix="/api/v1", tags=["snapshots"])

_LISTED = Listing(
    filters={
        "execution": Filter("Of this execution."),
        "workflow": Filter("Of executions of this workflow: its id, its name, or name@version."),
        "taken_after": moment("Taken at this moment or later."),
        "taken_before": moment("Taken before this moment."),
    },
    sorts=("taken_at",),
    default_sort="-taken_at",
)
_LINES, _JSON = "application/jsonl", "application/json"
_SHOWN = {
    "id": "snap_01M7PQ5AGEY1PSSZ6FSFKW43VC",
    "execution_id": "exec_01M7PPHY108SW54TWTEPKXR9AZ",
    "version": 8,
    "workflow": {"id": "wf_01M7PPHY0D1V3PZJ4N6DYTE77R", "name": "support", "version": "1.0.0"},
    "status": "completed",
    "ended_at": "2026-11-18T06:57:57.339Z",
    "digest": "9f0c6b6a5b0f0a0f6a2b6f0d2f8a4a3d5f3c8f5b7a1e2d3c4b5a69788796a5b4",
    "bytes": 4211,
    "taken_at": "2026-11-18T07:00:00.000Z",
}


class TakeBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": 8}]})

    version: int | None = Field(
        default=None, ge=1, le=2**53, description="After so many of its events; without it, as it stands now."
    )


class SnapshotView(schemas.Shape):
    id: str
    execution_id: str
    version: int = Field(description="How many events of the execution it has.")
    workflow: schemas.ListedWorkflow
    status: str = Field(description="The execution's, at that version.")
    ended_at: str | None = schemas.Moment
    digest: str = Field(description="SHA-256 of its content, in hex. The same execution and version have the same.")
    bytes: int = Field(description="Of its content.")
    taken_at: str = schemas.Moment


class SnapshotList(schemas.ListShape):
    items: list[SnapshotView]


@router.post(
    "/executions/{execution}/snapshots",
    status_code=201,
    responses=documented(404, 409, 413, 422, ok={201: SnapshotView, 200: SnapshotView}, example=_SHOWN),
)
@needs(Permission.SNAPSHOTS_WRITE)
async def take(
    execution: str, behind: Behind, tenant: Tenant, body: TakeBody | None = None, key: IdempotencyKey = None
) -> Response:
    """Take the record of an execution, as it stands now or stood at a version. What is there already answers 200.

    It has the definition, every event, the costs, the state and the large values, and outlives the execution's history.
    """
    state = await behind.orchestrator.state(tenant, ExecutionId(execution))
    version = None if body is None else body.version
    if version is not None and version > state.version:
        raise NoSuchVersion(execution, version, state.version)
    taken, new = await behind.take_snapshot(state, version, key)
    headers = {"Location": f"/api/v1/snapshots/{taken.id}", "ETag": _etag(taken.digest)}
    return answer(_view(taken), 201 if new else 200, headers)


@router.get(
    "/snapshots",
    responses=documented(
        422, ok=SnapshotList, example={"items": [_SHOWN], "next_cursor": "WyIyIl0", "total_count": 2}
    ),
    openapi_extra=_LISTED.openapi(),
)  # fmt: skip
@needs(Permission.SNAPSHOTS_READ)
async def list_snapshots(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """The newest first."""
    wanted = SnapshotFilter(
        execution=page.filters.get("execution"),
        workflow=page.filters.get("workflow"),
        taken_from_ms=page.filters.get("taken_after"),
        taken_before_ms=page.filters.get("taken_before"),
    )
    after = None if page.after is None else SnapshotPlace(*page.after)
    found = await behind.snapshots.page(tenant, wanted, limit=page.limit + 1, after=after, newest_first=page.descending)
    shown = found[: page.limit]
    last = (shown[-1].created_at_ms, shown[-1].id) if len(found) > len(shown) else None
    total = await behind.snapshots.count(tenant, wanted)
    return answer(
        page.answer([_view(one) for one in shown], last, total=total, exact=total < limits.LIST_COUNT_MAX)
    )  # fmt: skip


@router.get("/snapshots/{snapshot}", responses=documented(404, ok=SnapshotView, example=_SHOWN))
@needs(Permission.SNAPSHOTS_READ)
async def show(snapshot: str, behind: Behind, tenant: Tenant) -> Response:
    """What it is of. Its ETag is its digest."""
    found = await behind.snapshots.find(tenant, snapshot)
    return answer(_view(found), headers={"ETag": _etag(found.digest)})


def _streamed(media_type: str, about: str) -> dict[int | str, dict[str, Any]]:
    shown = {"description": about, "content": {media_type: {"schema": {"type": "string"}}}}
    return {**documented(404, ok={}), 200: shown}


IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", max_length=1024)]


@router.get(
    "/snapshots/{snapshot}/content",
    response_class=StreamingResponse,
    responses=_streamed(_LINES, "JSON Lines: what it is of, events, definitions, costs, state, end."),
)
@needs(Permission.SNAPSHOTS_READ)
async def content(snapshot: str, behind: Behind, tenant: Tenant, known: IfNoneMatch = None) -> Response:
    """The record itself, to be checked against the digest by whoever reads it; `Repr-Digest` has it too."""
    found = await behind.snapshots.find(tenant, snapshot)
    return await _stream(behind.snapshots.content(found), _LINES, found.digest, known, size=found.bytes)


@router.get(
    "/snapshots/{snapshot}/values/{sha256}",
    response_class=StreamingResponse,
    responses=_streamed(_JSON, "The value, as JSON."),
)
@needs(Permission.SNAPSHOTS_READ)
async def value(snapshot: str, sha256: str, behind: Behind, tenant: Tenant, known: IfNoneMatch = None) -> Response:
    """A large value of the execution, by the hash that stands in its place in the content."""
    found = await behind.snapshots.find(tenant, snapshot)
    return await _stream(behind.snapshots.value(found, sha256), _JSON, sha256, known)


@router.delete("/snapshots/{snapshot}", status_code=204, responses=documented(404, 409, ok={}))
@needs(Permission.SNAPSHOTS_WRITE)
async def remove(snapshot: str, behind: Behind, tenant: Tenant) -> None:
    """Remove it with all that it holds. Refused (409) where the tenant's are kept for good."""
    await behind.snapshots.remove(tenant, snapshot)


async def _stream(
    chunks: AsyncIterator[bytes], media_type: str, digest: str, known: str | None, *, size: int | None = None
) -> Response:
    """The first chunk is read here: what is lost or damaged from the beginning is still told as a problem."""
    headers = {"ETag": _etag(digest), "Cache-Control": "private, no-cache"}
    first = await anext(chunks, b"")
    if known is not None and matches(known.encode(), _etag(digest).encode()):
        return Response(status_code=304, headers=headers)
    headers["Repr-Digest"] = f"sha-256=:{b64encode(bytes.fromhex(digest)).decode()}:"
    if size is not None:
        headers["Content-Length"] = str(size)
    return StreamingResponse(_after(first, chunks), 200, headers, media_type)


async def _after(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    try:
        async for chunk in chunks:
            yield chunk
    except AgentFlowError as error:  # too late for a problem: cut the line, so that nobody takes it for the whole
        raise ConnectionAbortedError(error.message) from error


def _etag(digest: str) -> str:
    return f'"{digest}"'


def _view(snapshot: Snapshot) -> dict[str, Any]:
    ended_ms = snapshot.ended_at_ms
    return {
        "id": snapshot.id,
        "execution_id": snapshot.execution,
        "version": snapshot.version,
        "workflow": snapshot.workflow,
        "status": snapshot.status,
        "ended_at": None if ended_ms is None else rfc3339(ended_ms),
        "digest": snapshot.digest,
        "bytes": snapshot.bytes,
        "taken_at": rfc3339(snapshot.created_at_ms),
    }
