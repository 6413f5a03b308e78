"""How a value is named that lies in the artifact store instead of in a message or an event."""

import msgspec


class ArtifactRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A content by its SHA-256 and its size, both of the uncompressed bytes. Whose it is, its `Shelf` says."""

    sha256: str
    bytes: int
