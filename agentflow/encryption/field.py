"""One stored field, sealed to its place: the same bytes in another row, column or tenant do not open.

A sealed field is text: `af1:<key id>:<base64 of nonce and ciphertext>`. Whether a field is sealed is known by its
column, never guessed from what users wrote: every reader calls `is_sealed` on the stored form only.
"""

import base64
import binascii
import os

import msgspec
from cryptography.exceptions import InvalidTag

from agentflow.encryption.keyring import KeyRing
from agentflow.errors import Rejected

_MARK = "af1:"
_NONCE_BYTES = 12


class Place(msgspec.Struct, frozen=True):
    """Where a field is stored. `row` names the row for ever: a field moved to another row is a forgery."""

    tenant: str
    field: str
    row: str

    def bytes(self) -> bytes:
        # Each part with its length, so that no two places share one form.
        return b"".join(
            b"%d:%b" % (len(part), part) for part in (self.tenant.encode(), self.field.encode(), self.row.encode())
        )


class SealBroken(Rejected):
    code = "AF1612"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} does not open with its key: it was changed, or belongs somewhere else.",
            hint="Restore it from a backup, and find out who can write to the database.",
        )


def seal(ring: KeyRing, place: Place, plain: bytes) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + ring.cipher(ring.primary, place.tenant).encrypt(nonce, plain, place.bytes())
    return f"{_MARK}{ring.primary}:{base64.b64encode(sealed).decode()}"


def unseal(ring: KeyRing, place: Place, sealed: str) -> bytes:
    key_id, _, encoded = sealed.removeprefix(_MARK).partition(":")
    cipher = ring.cipher(key_id, place.tenant)
    try:
        raw = base64.b64decode(encoded, validate=True)
        return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], place.bytes())
    except (InvalidTag, binascii.Error, ValueError):
        raise SealBroken(f"{place.field} of {place.row}") from None


def is_sealed(stored: str) -> bool:
    return stored.startswith(_MARK)


def sealed_prefix(key_id: str = "") -> str:
    """What every field sealed with that key begins with; without an id, every sealed field."""
    return f"{_MARK}{key_id}:" if key_id else _MARK
