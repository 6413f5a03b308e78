"""The sheets of a workspace in the artifact store: which ones make a version, and a version for another execution.

Used by workers, who bring a version back, and by the control plane, which gives a fork the one it begins with. Neither
looks into a sheet here beyond its head.
"""

from contextlib import aclosing

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.workspace import SheetHead, WorkspaceLeft, head_in, shelf_owner
from agentflow.ports import ArtifactDamaged, ArtifactStore, Shelf


def shelf_of(tenant: str, execution: str, left: WorkspaceLeft) -> Shelf:
    return Shelf(tenant, shelf_owner(execution, left.shelf))


async def sheets_of(store: ArtifactStore, shelf: Shelf, left: WorkspaceLeft) -> list[ArtifactRef]:
    """Of one version, the lowest first. Raises what `ArtifactStore.get` raises."""
    found = [left.archive]
    while left.number and (below := (await _head(store, shelf, found[-1])).below) is not None:
        if len(found) == left.sheets:
            raise ArtifactDamaged(shelf, left.archive.sha256, "there are more sheets under it than there should be")
        found.append(below)
    return found[::-1]


async def handed_over(
    store: ArtifactStore, left: WorkspaceLeft, *, tenant: str, origin: str, target: str
) -> WorkspaceLeft:
    """The same version on a shelf of another execution, and gone with it. Raises what `ArtifactStore.get` raises."""
    shelf = shelf_of(tenant, origin, left)
    taken = msgspec.structs.replace(left, shelf=1, shelved=left.bytes)
    for sheet in await sheets_of(store, shelf, left):
        await store.put(shelf_of(tenant, target, taken), store.stream(shelf, sheet))
    return taken


async def _head(store: ArtifactStore, shelf: Shelf, sheet: ArtifactRef) -> SheetHead:
    """Read before the whole is proven: who unpacks the sheet has it proven then."""
    beginning = b""
    try:
        async with aclosing(store.stream(shelf, sheet)) as parts:
            async for part in parts:
                beginning += part
                if (found := head_in(beginning)) is not None:
                    return found
    except msgspec.DecodeError as error:
        raise ArtifactDamaged(shelf, sheet.sha256, f"it has no head: {error}") from None
    raise ArtifactDamaged(shelf, sheet.sha256, "it has no head")
