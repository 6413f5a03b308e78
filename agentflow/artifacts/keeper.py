"""What a place for bytes must offer: whole objects under names, never half of one.

Implemented by `folder` and `s3`, used by `store` (artifacts) and by exports. Everything here blocks: callers run it in
threads.
"""

from collections.abc import Iterator
from typing import BinaryIO, Protocol

import msgspec


class Kept(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    at_ms: int  # when it was written


class Keeper(Protocol):
    """Names are parts joined by `/`, each checked by whoever makes them. Raises `ArtifactsUnavailable`."""

    def spool(self) -> BinaryIO:
        """A scratch file to fill; closing it without `keep` leaves nothing behind."""
        ...

    def keep(self, spool: BinaryIO, name: str) -> None:
        """Durable under that name when this returns, and at no moment half of it. An older one is replaced."""
        ...

    def read(self, name: str) -> BinaryIO:
        """Raises `FileNotFoundError`."""
        ...

    def has(self, name: str) -> bool: ...

    def names(self, prefix: str = "") -> Iterator[Kept]:
        """All under a folder-like prefix, in no order."""
        ...

    def remove(self, name: str) -> None:
        """One object; one that is not there is no fault."""
        ...
