"""What can be asked about snapshots: take, list, show, read, remove."""

from collections.abc import AsyncIterator, Callable, Sequence

from agentflow.contracts.artifact import ArtifactRef
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import ARTIFACT_BYTES_MAX
from agentflow.ports import ArtifactLost, ArtifactStore, InvalidArtifactName
from control_plane.snapshots.snapshot import (
    Snapshot,
    SnapshotFilter,
    SnapshotKept,
    SnapshotNotFound,
    SnapshotPlace,
    SnapshotStore,
    ValueNotThere,
)
from control_plane.snapshots.taking import Taking


class Snapshots:
    def __init__(
        self,
        *,
        store: SnapshotStore,
        taking: Taking,
        artifacts: ArtifactStore,
        kept_for_good: Callable[[TenantId], bool],
    ) -> None:
        self._store = store
        self._taking = taking
        self._artifacts = artifacts
        self._kept_for_good = kept_for_good

    async def take(self, tenant: TenantId, execution: ExecutionId, version: int) -> tuple[Snapshot, bool]:
        """The snapshot of an execution at a version, and whether it is new."""
        return await self._taking.take(tenant, execution, version)

    async def find(self, tenant: TenantId, snapshot: str) -> Snapshot:
        found = await self._store.get(tenant, snapshot)
        if found is None:
            raise SnapshotNotFound(snapshot)
        return found

    async def page(
        self,
        tenant: TenantId,
        wanted: SnapshotFilter,
        *,
        limit: int,
        after: SnapshotPlace | None = None,
        newest_first: bool = True,
    ) -> Sequence[Snapshot]:
        return await self._store.page(tenant, wanted, limit=limit, after=after, newest_first=newest_first)

    async def count(self, tenant: TenantId, wanted: SnapshotFilter) -> int:
        return await self._store.count(tenant, wanted)

    def content(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """Its bytes; only who has taken the last chunk has the right ones."""
        return self._artifacts.stream(snapshot.shelf, snapshot.content)

    async def value(self, snapshot: Snapshot, sha256: str) -> AsyncIterator[bytes]:
        """A large value that lies beside it, as JSON. What its hash is, is what it is checked against."""
        try:
            async for chunk in self._artifacts.stream(snapshot.shelf, ArtifactRef(sha256, ARTIFACT_BYTES_MAX)):
                yield chunk
        except (ArtifactLost, InvalidArtifactName):
            raise ValueNotThere(snapshot.id, sha256) from None

    async def remove(self, tenant: TenantId, snapshot: str) -> None:
        """The row first: killed in between, what is left lies on a shelf of nobody, and goes with the next purge."""
        found = await self.find(tenant, snapshot)
        if self._kept_for_good(tenant):
            raise SnapshotKept(snapshot)
        await self._store.remove(tenant, snapshot)
        await self._artifacts.drop(found.shelf)
