"""A snapshot as it is listed, and the port of what keeps the list. Its bytes are in the artifact store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.errors import Conflict, NotFound
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import Shelf
from control_plane.registry.executions import ListedWorkflow

SNAPSHOT_ID = "snap_"  # what every one's begins with


class SnapshotNotFound(NotFound):
    code = "AF2320"

    def __init__(self, snapshot: str) -> None:
        super().__init__(f"There is no snapshot {snapshot!r}.", hint="List them with `af snapshot list`.")


class HistoryGone(Conflict):
    code = "AF2321"

    def __init__(self, execution: str, version: int) -> None:
        super().__init__(
            f"The history of {execution} is not there up to version {version} any more, so no snapshot was taken.",
            hint="Its retention is over. `af snapshot list --execution EXECUTION` shows those that were taken before.",
        )


class SnapshotKept(Conflict):
    code = "AF2322"

    def __init__(self, snapshot: str) -> None:
        super().__init__(
            f"Snapshots of your tenant are kept for good, so {snapshot} cannot be removed.",
            hint="Whoever runs the deployment has said so with `snapshot=never` in AF_RETENTION.",
        )


class ValueNotThere(NotFound):
    code = "AF2324"

    def __init__(self, snapshot: str, sha256: str) -> None:
        super().__init__(
            f"No value {sha256[:64]!r} lies beside {snapshot}.",
            hint="The last line of its content (`end`) lists those that do, and those that were lost before.",
        )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` are those of its content. `status` and `ended_at_ms` are the execution's, at that version."""

    tenant: TenantId
    id: str
    execution: ExecutionId
    version: int
    workflow: ListedWorkflow
    status: str
    ended_at_ms: int | None
    digest: str
    bytes: int
    created_at_ms: int

    @property
    def shelf(self) -> Shelf:
        return shelf_of(self.tenant, self.id)

    @property
    def content(self) -> ArtifactRef:
        return ArtifactRef(self.digest, self.bytes)


def shelf_of(tenant: TenantId, snapshot: str) -> Shelf:
    return Shelf(tenant, snapshot)


class SnapshotFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given must fit; nothing given fits all."""

    execution: str | None = None
    workflow: str | None = None  # an id, a name, or name@version
    taken_from_ms: int | None = None
    taken_before_ms: int | None = None


class SnapshotPlace(msgspec.Struct, frozen=True):
    """Where one stands in the order in which they were taken."""

    created_at_ms: int
    id: str


class SnapshotStore(Protocol):
    async def add(self, snapshot: Snapshot) -> Snapshot:
        """The one that is kept of this execution at this version: this, or another that came before it."""
        ...

    async def get(self, tenant: TenantId, snapshot: str) -> Snapshot | None: ...

    async def of_version(self, tenant: TenantId, execution: ExecutionId, version: int) -> Snapshot | None: ...

    async def page(
        self,
        tenant: TenantId,
        wanted: SnapshotFilter,
        *,
        limit: int,
        after: SnapshotPlace | None,
        newest_first: bool,
    ) -> Sequence[Snapshot]: ...

    async def count(self, tenant: TenantId, wanted: SnapshotFilter) -> int:
        """Never more than `limits.LIST_COUNT_MAX`, which then means at least so many."""
        ...

    async def remove(self, tenant: TenantId, snapshot: str) -> bool:
        """Whether it was there."""
        ...
