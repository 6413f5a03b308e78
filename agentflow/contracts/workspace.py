"""How a version of a workspace is named and kept: what is said with a step's result, and what a sheet says of itself.

A version lies in the artifact store as sheets: the newest holds what one call changed and names the one below it, down
to a sheet that holds everything. So each version that was ever left can be had again, and costs what changed.
"""

import msgspec

from agentflow.contracts.artifact import ArtifactRef

_HEAD_BYTES_MAX = 64 * 1024 * 1024  # names of all that may be gone


class WorkspaceLeft(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call left in the workspace of its execution."""

    digest: str
    archive: ArtifactRef  # the newest sheet
    number: int = 0  # grows with every version, and goes on in forks; 0: an archive from before there were sheets
    sheets: int = 1
    bytes: int = 0  # of all the sheets under this version and its own
    shelf: int = 0  # which of the execution's shelves of versions
    shelved: int = 0  # bytes on that shelf so far


class SheetHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a sheet; an archive of what is new follows."""

    below: ArtifactRef | None = None
    gone: tuple[str, ...] = ()  # paths of what is there no more, or is about to be another kind of thing


def shelf_owner(execution: str, shelf: int) -> str:
    """Versions share the shelf of their execution's values, until they have filled it."""
    return execution if shelf == 0 else f"{execution}.{shelf}"


def execution_of(owner: str) -> str:
    """Whose shelf it is; the name of anything else is its own."""
    return owner.partition(".")[0]


def written_head(head: SheetHead) -> bytes:
    return msgspec.json.encode(head) + b"\n"


def head_in(beginning: bytes) -> SheetHead | None:
    """The head in the first bytes of a sheet; None while there are too few."""
    end = beginning.find(b"\n")
    if end < 0 and len(beginning) <= _HEAD_BYTES_MAX:
        return None
    return head_of(beginning[:end])


def head_of(line: bytes) -> SheetHead:
    """Raises `msgspec.DecodeError` for what is none."""
    return msgspec.json.decode(line, type=SheetHead)
