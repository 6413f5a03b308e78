"""Immutable records of executions: `client.snapshots`."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from urllib.parse import urlencode

import msgspec

from agentflow.contracts.snapshot import SnapshotAltered
from agentflow.limits import LIST_PAGE_MAX
from agentflow.sdk.requests import Ask, asked, new_key, pages, segment


class SnapshotWorkflow(msgspec.Struct, frozen=True):
    id: str
    name: str
    version: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an execution at a version. `digest` is the SHA-256 of its content, in hex."""

    id: str
    execution_id: str
    version: int
    workflow: SnapshotWorkflow
    status: str
    ended_at: str | None
    digest: str
    bytes: int
    taken_at: str


class SnapshotList(msgspec.Struct, frozen=True):
    items: list[Snapshot]
    next_cursor: str | None = None
    total_count: int | None = None


Streaming = Callable[[str], AsyncGenerator[bytes, None]]


class SnapshotOperations:
    def __init__(self, ask: Ask, stream: Streaming) -> None:
        self._ask = ask
        self._stream = stream

    async def take(self, execution: str, *, version: int | None = None, key: str | None = None) -> Snapshot:
        """The record of an execution as it stands now, or stood at a version. Taken once; asked again, the same."""
        body = {} if version is None else {"version": version}
        path = f"/executions/{segment(execution)}/snapshots"
        return await self._ask("POST", path, Snapshot, body, key=key or new_key())

    async def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: str | None) -> SnapshotList:
        """One page, the newest first. Filters: execution, workflow, taken_after, taken_before."""
        query = urlencode(asked(limit=limit, cursor=cursor, **filters))
        return await self._ask("GET", f"/snapshots?{query}", SnapshotList)

    async def iterate(self, **filters: str | None) -> AsyncIterator[Snapshot]:
        """Every one that fits, page by page as they are asked for."""
        async for page in pages(lambda cursor: self.list(limit=LIST_PAGE_MAX, cursor=cursor, **filters)):
            for one in page.items:
                yield one

    async def show(self, snapshot: str) -> Snapshot:
        return await self._ask("GET", _path(snapshot), Snapshot)

    async def content(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """Its bytes, chunk by chunk. Raises `SnapshotAltered` at the end where they are not those of its digest."""
        async for chunk in self._checked(f"{_path(snapshot.id)}/content", snapshot.digest, snapshot.id):
            yield chunk

    async def value(self, snapshot: str, sha256: str) -> AsyncIterator[bytes]:
        """A large value that lies beside it, as JSON, checked like the content."""
        path = f"{_path(snapshot)}/values/{segment(sha256)}"
        async for chunk in self._checked(path, sha256, snapshot):
            yield chunk

    async def delete(self, snapshot: str) -> None:
        """With all that it holds."""
        await self._ask("DELETE", _path(snapshot), type(None))

    async def _checked(self, path: str, sha256: str, snapshot: str) -> AsyncIterator[bytes]:
        digest = hashlib.sha256()
        async for chunk in self._stream(path):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise SnapshotAltered(snapshot, f"what was sent has the digest {digest.hexdigest()}, and not {sha256}")


def _path(snapshot: str) -> str:
    return f"/snapshots/{segment(snapshot)}"
