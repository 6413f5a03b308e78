"""The keys of a deployment: the first one encrypts, all of them decrypt.

Each tenant has keys of its own, derived from the ring's (HKDF), so what was written for one tenant cannot be read as
another's whatever the rest of the code does. Ids are part of what is stored and so may be seen; keys never are.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agentflow.errors import Invalid, Rejected

KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)
_SHAPE = "Write id:key for each, the one to encrypt with first; make a key with `af keys new`."


class InvalidKeys(Invalid):
    code = "AF1610"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The encryption keys cannot be used: {reason}.", hint=_SHAPE)
        self.reason = reason


class UnknownKey(Rejected):
    code = "AF1611"

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"Something stored is encrypted with the key {key_id!r}, which is not among AF_ENCRYPTION_KEYS.",
            hint="Add that key again after the first one, and take it out only after `af keys rekey` has finished.",
        )


class KeyRing:
    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        if not keys:
            raise InvalidKeys("there is none")
        self._keys = dict(keys)
        if len(self._keys) != len(keys):
            raise InvalidKeys("two keys have the same id")
        for key_id, key in keys:
            if not _KEY_ID.fullmatch(key_id):
                raise InvalidKeys("an id may have 32 letters, digits, dots, dashes and underscores")
            if len(key) != KEY_BYTES:
                raise InvalidKeys(f"key {key_id!r} has {len(key)} bytes instead of {KEY_BYTES}")
        self.primary = keys[0][0]
        self._cipher = lru_cache(maxsize=4096)(self._derived)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    def cipher(self, key_id: str, tenant: str) -> AESGCM:
        """The tenant's own key under one of the ring's. Raises `UnknownKey`."""
        return self._cipher(key_id, tenant)

    def _derived(self, key_id: str, tenant: str) -> AESGCM:
        master = self._keys.get(key_id)
        if master is None:
            raise UnknownKey(key_id)
        context = b"agentflow/tenant/v1\0" + tenant.encode()
        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=None, info=context).derive(master))


def parse_keys(text: str) -> KeyRing:
    """`id:base64` entries, by commas or on lines of their own; `#` begins a comment. Never repeats what it reads."""
    entries = [entry for line in text.splitlines() for entry in re.split(r"[,\s]+", line.partition("#")[0]) if entry]
    keys = []
    for number, entry in enumerate(entries, start=1):
        key_id, colon, encoded = entry.partition(":")
        if not colon:
            raise InvalidKeys(f"entry {number} is not id:key")
        try:
            keys.append((key_id, base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)))
        except (binascii.Error, ValueError):
            raise InvalidKeys(f"the key of entry {number} is not base64") from None
    return KeyRing(keys)


def written_key(key_id: str, key: bytes) -> str:
    """A key as `parse_keys` reads it."""
    return f"{key_id}:{base64.urlsafe_b64encode(key).decode().rstrip('=')}"
