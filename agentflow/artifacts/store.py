"""The artifact store: content by its hash, on shelves that go when their owner goes.

Implements `agentflow.ports.ArtifactStore` over any keeper. A content is kept once on each shelf; what two owners share
is kept twice, so that nobody has to count who still needs what. Everything that blocks runs in threads.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from typing import BinaryIO

from agentflow.artifacts.blob import (
    CHUNK_BYTES,
    BlobWriter,
    blob_name,
    content_of,
    parsed_name,
    sealed_with,
    shelf_name,
)
from agentflow.artifacts.keeper import Keeper
from agentflow.contracts.artifact import ArtifactRef
from agentflow.encryption.keyring import KeyRing
from agentflow.ports import ArtifactLost, Shelf, ShelfUse


class KeptArtifacts:
    def __init__(self, keeper: Keeper, ring: KeyRing | None = None) -> None:
        self._keeper = keeper
        self._ring = ring

    async def put(self, shelf: Shelf, content: bytes | AsyncIterable[bytes]) -> ArtifactRef:
        if isinstance(content, bytes):
            return await asyncio.to_thread(self._put, shelf, content)
        shelf_name(shelf)  # told before anything is read
        spool = await asyncio.to_thread(self._keeper.spool)
        try:
            writer = BlobWriter(shelf, spool, self._ring)
            async for chunk in content:
                await asyncio.to_thread(writer.write, chunk)
            return await asyncio.to_thread(self._keep, shelf, writer, spool)
        finally:
            await asyncio.to_thread(spool.close)

    async def get(self, shelf: Shelf, ref: ArtifactRef) -> bytes:
        return await asyncio.to_thread(lambda: b"".join(self._content(shelf, ref)))

    async def stream(self, shelf: Shelf, ref: ArtifactRef) -> AsyncGenerator[bytes, None]:
        chunks = self._content(shelf, ref)
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk

    async def drop(self, shelf: Shelf) -> int:
        return await asyncio.to_thread(self._drop, shelf)

    async def shelves(self, tenant: str | None = None) -> Sequence[ShelfUse]:
        return await asyncio.to_thread(self._shelves, tenant)

    async def reseal(self, shelf: Shelf) -> int:
        return await asyncio.to_thread(self._reseal, shelf)

    def _put(self, shelf: Shelf, content: bytes) -> ArtifactRef:
        with self._keeper.spool() as spool:
            writer = BlobWriter(shelf, spool, self._ring)
            view = memoryview(content)
            for at in range(0, len(content), CHUNK_BYTES):
                writer.write(view[at : at + CHUNK_BYTES])  # type: ignore[arg-type]
            return self._keep(shelf, writer, spool)

    def _keep(self, shelf: Shelf, writer: BlobWriter, spool: BinaryIO) -> ArtifactRef:
        ref = writer.finish()
        name = blob_name(shelf, ref)
        if not self._keeper.has(name):
            self._keeper.keep(spool, name)
        return ref

    def _content(self, shelf: Shelf, ref: ArtifactRef) -> Iterator[bytes]:
        try:
            blob = self._keeper.read(blob_name(shelf, ref))
        except FileNotFoundError:
            raise ArtifactLost(shelf, ref) from None
        try:
            yield from content_of(shelf, ref.sha256, blob, self._ring, bytes_max=ref.bytes)
        finally:
            blob.close()

    def _drop(self, shelf: Shelf) -> int:
        freed = 0
        for kept in list(self._keeper.names(shelf_name(shelf))):
            self._keeper.remove(kept.name)
            freed += kept.bytes
        return freed

    def _shelves(self, tenant: str | None) -> Sequence[ShelfUse]:
        if tenant is not None:
            shelf_name(Shelf(tenant, "any"))
        found: dict[Shelf, ShelfUse] = {}
        for kept in self._keeper.names(tenant or ""):
            named = parsed_name(kept.name)
            if named is None:
                continue  # not ours, so not ours to count or remove
            shelf = named[0]
            before = found.get(shelf, ShelfUse(shelf, 0, 0, 0))
            found[shelf] = ShelfUse(
                shelf, before.artifacts + 1, before.bytes + kept.bytes, max(before.newest_ms, kept.at_ms)
            )
        return sorted(found.values(), key=lambda use: (use.shelf.tenant, use.shelf.owner))

    def _reseal(self, shelf: Shelf) -> int:
        """Keep again, under the ring's first key, what lies there under another or none. How many there were."""
        again = 0
        for kept in list(self._keeper.names(shelf_name(shelf))):
            named = parsed_name(kept.name)
            if named is not None and self._ring is not None and self._is_stale(kept.name, self._ring):
                self._reseal_one(shelf, named[1], kept.name, self._ring)
                again += 1
        return again

    def _is_stale(self, name: str, ring: KeyRing) -> bool:
        try:
            blob = self._keeper.read(name)
        except FileNotFoundError:
            return False  # gone with its owner while we looked
        try:
            return sealed_with(blob) != ring.primary
        finally:
            blob.close()

    def _reseal_one(self, shelf: Shelf, sha256: str, name: str, ring: KeyRing) -> None:
        blob = self._keeper.read(name)
        try:
            with self._keeper.spool() as spool:
                writer = BlobWriter(shelf, spool, ring)
                for chunk in content_of(shelf, sha256, blob, ring):
                    writer.write(chunk)
                writer.finish()
                self._keeper.keep(spool, name)
        finally:
            blob.close()
