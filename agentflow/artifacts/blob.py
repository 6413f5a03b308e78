"""What is kept of an artifact: its bytes as one zstd frame, sealed where there are keys.

A blob is believed only after it has been measured and hashed: what a store gives back may be torn, rotten, swapped or
hostile. Chunk by chunk both ways, so an artifact of any size takes a few MiB of memory.
"""

import hashlib
import re
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

import zstandard

from agentflow import limits
from agentflow.contracts.artifact import ArtifactRef
from agentflow.encryption.field import Place, SealBroken
from agentflow.encryption.keyring import KeyRing
from agentflow.encryption.stream import MAGIC, SealingWriter, UnsealingReader
from agentflow.ports import ArtifactDamaged, ArtifactTooLarge, InvalidArtifactName, Shelf

CHUNK_BYTES = 1024 * 1024
_LEVEL = 3  # zstd's own default: about 300 MB/s here, and higher levels gain little on JSON
_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # what our level needs at most; a blob that announces more is none of ours
_SUFFIX = ".zst"
# No separator, no leading dot: such a name is one file in one folder, whatever the operating system.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class BlobWriter:
    """Content goes in, the blob comes out into a file, and the name of the content is known at the end."""

    def __init__(self, shelf: Shelf, spool: BinaryIO, ring: KeyRing | None) -> None:
        self._digest = hashlib.sha256()
        self._bytes = 0
        # Sealed to its shelf; what it is inside that shelf, the content's own hash says.
        self._sealing = None if ring is None else SealingWriter(ring, _place(shelf), spool.write)
        self._out = spool.write if self._sealing is None else self._sealing.write
        self._frame = zstandard.ZstdCompressor(level=_LEVEL).compressobj()

    def write(self, content: bytes) -> None:
        self._bytes += len(content)
        if self._bytes > limits.ARTIFACT_BYTES_MAX:
            raise ArtifactTooLarge(limits.ARTIFACT_BYTES_MAX)
        self._digest.update(content)
        self._out(self._frame.compress(content))

    def finish(self) -> ArtifactRef:
        self._out(self._frame.flush())
        if self._sealing is not None:
            self._sealing.close()
        return ArtifactRef(self._digest.hexdigest(), self._bytes)


def content_of(
    shelf: Shelf, sha256: str, blob: BinaryIO, ring: KeyRing | None, *, bytes_max: int = limits.ARTIFACT_BYTES_MAX
) -> Iterator[bytes]:
    """The content with that hash, or `ArtifactDamaged`; never more than `bytes_max` of it.

    The last chunk is given out only once the whole is proven, so who takes all of it has the right bytes.
    """
    digest, left, held = hashlib.sha256(), bytes_max, b""
    try:
        source = _unsealed(shelf, sha256, blob, ring)
        # `read` gives at most what is asked for, however far a hostile frame would expand.
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).stream_reader(source)  # type: ignore[arg-type]
        while chunk := reader.read(min(CHUNK_BYTES, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise ArtifactDamaged(shelf, sha256, "it holds more than it should")
            digest.update(chunk)
            if held:
                yield held
            held = chunk
    except (zstandard.ZstdError, SealBroken) as error:
        raise ArtifactDamaged(shelf, sha256, str(error).partition("\n")[0].rstrip(".")) from None
    if digest.hexdigest() != sha256:
        raise ArtifactDamaged(shelf, sha256, "it holds other bytes")
    if held:
        yield held


def _unsealed(shelf: Shelf, sha256: str, blob: BinaryIO, ring: KeyRing | None) -> BinaryIO | UnsealingReader:
    head = blob.read(len(MAGIC))
    if head != MAGIC:
        return _Joined(head, blob)  # written before there were keys
    if ring is None:
        raise ArtifactDamaged(shelf, sha256, "it is encrypted, and there are no AF_ENCRYPTION_KEYS")
    return UnsealingReader(ring, _place(shelf), lambda size: _exactly(blob, size))


class _Joined(BytesIO):
    """What was read to look at, then the rest of the file."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__(head)
        self._rest = rest

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size) or self._rest.read(-1 if size is None else size)


def _exactly(blob: BinaryIO, size: int) -> bytes:
    """Sockets may give less than asked for before the end; this does not."""
    data = blob.read(size)
    while data and len(data) < size and (more := blob.read(size - len(data))):
        data += more
    return data


def sealed_with(blob: BinaryIO) -> str | None:
    """The id of the key a blob is sealed with; None where it is not sealed."""
    if blob.read(len(MAGIC)) != MAGIC:
        return None
    length = blob.read(1)
    return _exactly(blob, length[0]).decode(errors="replace") if length else ""


def shelf_name(shelf: Shelf) -> str:
    """`tenant/owner`. Raises `InvalidArtifactName` for anything that could lead elsewhere."""
    for part in (shelf.tenant, shelf.owner):
        if not _SEGMENT.fullmatch(part):
            raise InvalidArtifactName(part)
    return f"{shelf.tenant}/{shelf.owner}"


def blob_name(shelf: Shelf, ref: ArtifactRef) -> str:
    if not _SHA256.fullmatch(ref.sha256) or ref.bytes < 0:
        raise InvalidArtifactName(f"{ref.sha256} of {ref.bytes} bytes")
    return f"{shelf_name(shelf)}/{ref.sha256}{_SUFFIX}"


def parsed_name(name: str) -> tuple[Shelf, str] | None:
    """The shelf and the hash a blob's name says; None for what is no blob."""
    parts = name.split("/")
    if len(parts) != 3 or not all(_SEGMENT.fullmatch(part) for part in parts) or not parts[2].endswith(_SUFFIX):
        return None
    sha256 = parts[2].removesuffix(_SUFFIX)
    return (Shelf(parts[0], parts[1]), sha256) if _SHA256.fullmatch(sha256) else None


def _place(shelf: Shelf) -> Place:
    return Place(shelf.tenant, "artifact", shelf.owner)
