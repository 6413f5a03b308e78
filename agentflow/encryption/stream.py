"""Bytes of any length, sealed in chunks: no chunk can be changed, left out, doubled, moved or cut off unnoticed.

The STREAM construction: a nonce is a random prefix, the chunk's number and whether it is the last. A sealed stream is
`AFE1`, the length and the letters of the key's id, the prefix, then chunks of `CHUNK_BYTES` plus a tag each.
"""

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidTag

from agentflow.encryption.field import Place, SealBroken
from agentflow.encryption.keyring import KeyRing

MAGIC = b"AFE1"
CHUNK_BYTES = 256 * 1024
_TAG_BYTES = 16
_PREFIX_BYTES = 7


class SealingWriter:
    """Takes bytes as they come and hands on sealed chunks; `close` writes the last one."""

    def __init__(self, ring: KeyRing, place: Place, write: Callable[[bytes], object]) -> None:
        self._cipher = ring.cipher(ring.primary, place.tenant)
        self._place = place.bytes()
        self._write = write
        self._prefix = os.urandom(_PREFIX_BYTES)
        self._pending = bytearray()
        self._number = 0
        key_id = ring.primary.encode()
        write(MAGIC + bytes([len(key_id)]) + key_id + self._prefix)

    def write(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) > CHUNK_BYTES:  # exactly one chunk may still be the last
            self._seal(bytes(self._pending[:CHUNK_BYTES]), last=False)
            del self._pending[:CHUNK_BYTES]

    def close(self) -> None:
        self._seal(bytes(self._pending), last=True)

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        self._write(self._cipher.encrypt(_nonce(self._prefix, self._number, last), chunk, self._place))
        self._number += 1


class UnsealingReader:
    """A file of plain bytes over a sealed one. Gives out nothing that was not verified."""

    def __init__(self, ring: KeyRing, place: Place, read: Callable[[int], bytes]) -> None:
        """`read` stands right after `MAGIC`, and gives less than asked for only at the end."""
        self._read = read
        self._place = place
        length = read(1)
        key_id = read(length[0]) if length else b""
        self._prefix = read(_PREFIX_BYTES)
        if len(self._prefix) != _PREFIX_BYTES:
            raise SealBroken(f"{place.field} {place.row}")
        self._cipher = ring.cipher(key_id.decode(errors="replace"), place.tenant)
        self._aad = place.bytes()
        self._number = 0
        self._next = read(CHUNK_BYTES + _TAG_BYTES)
        if not self._next:
            raise SealBroken(f"{place.field} {place.row}")  # even nothing is sealed in one chunk
        self._plain = b""

    def read(self, size: int = -1) -> bytes:
        while not self._plain and self._next:
            ahead = self._read(CHUNK_BYTES + _TAG_BYTES)
            nonce = _nonce(self._prefix, self._number, not ahead)
            try:
                self._plain = self._cipher.decrypt(nonce, self._next, self._aad)
            except (InvalidTag, ValueError):
                raise SealBroken(f"{self._place.field} {self._place.row}") from None
            self._next = ahead
            self._number += 1
        taken = self._plain if size < 0 else self._plain[:size]
        self._plain = self._plain[len(taken) :]
        return taken


def _nonce(prefix: bytes, number: int, last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + bytes([last])
