"""The keys tokens are signed with: made here, stored sealed, replaced in time, published as a JWKS.

Every control plane verifies with all public halves; it signs with the newest key whose private half it can open. One
that can open none (it has other encryption keys) makes its own, so replicas need no arrangement between them. Keys
leave the set once no token signed with them can still be valid.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.encryption.field import Place, SealBroken, seal, unseal
from agentflow.encryption.keyring import KeyRing, UnknownKey
from agentflow.encryption.signing import new_key_pair
from agentflow.limits import SIGNING_KEYS_REREAD_S, TOKEN_TTL_S_MAX
from control_plane.identity.tokens import ALGORITHM

_FIELD = "signing_keys.private_sealed"


class StoredKey(msgspec.Struct, frozen=True):
    id: str
    algorithm: str
    public_jwk: dict[str, Any]
    private_sealed: str
    created_at_ms: int


class SigningKeyStore(Protocol):
    async def all(self) -> Sequence[StoredKey]: ...

    async def add(self, key: StoredKey) -> None: ...

    async def remove(self, key_id: str) -> None: ...


class SigningKeys:
    def __init__(self, store: SigningKeyStore, ring: KeyRing, clock: Clock, *, rotate_s: float) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._rotate_ms = rotate_s * 1000
        self._keys: dict[str, StoredKey] = {}
        self._read_at_s: float | None = None
        self._changing = asyncio.Lock()

    async def current(self) -> tuple[str, bytes]:
        """The id and private half of the key to sign with now; makes one where it is time."""
        async with self._changing:
            await self._reread_if_due()
            if (usable := self._newest_usable()) is None:
                await self._reread()
                usable = self._newest_usable() or await self._make()
            return usable

    async def known(self, kid: str) -> None:
        """Look again for a key that is not known here; however many ask, not more often than the limit says."""
        if kid not in self._keys:
            async with self._changing:
                await self._reread_if_due()

    def public(self, kid: str) -> dict[str, Any] | None:
        key = self._keys.get(kid)
        return None if key is None or self._outlived(key) else key.public_jwk

    async def jwks(self) -> dict[str, Any]:
        async with self._changing:
            await self._reread_if_due()
        return {
            "keys": [
                {**key.public_jwk, "kid": key.id, "use": "sig", "alg": key.algorithm}
                for key in self._keys.values()
                if not self._outlived(key)
            ]
        }

    async def rotate(self) -> str:
        """Sign with a new key from now on; those before go on verifying until their tokens have expired."""
        async with self._changing:
            await self._reread()
            return (await self._make())[0]

    def _newest_usable(self) -> tuple[str, bytes] | None:
        young_after_ms = self._clock.now_ms() - self._rotate_ms
        for key in sorted(self._keys.values(), key=lambda one: one.created_at_ms, reverse=True):
            if key.created_at_ms <= young_after_ms:
                return None
            try:
                return key.id, unseal(self._ring, _place(key.id), key.private_sealed)
            except (UnknownKey, SealBroken):
                continue  # another control plane's own
        return None

    async def _make(self) -> tuple[str, bytes]:
        pair = new_key_pair()
        kid = secrets.token_hex(8)
        stored = StoredKey(
            id=kid,
            algorithm=ALGORITHM,
            public_jwk=dict(pair.public_jwk),
            private_sealed=seal(self._ring, _place(kid), pair.private_pem),
            created_at_ms=self._clock.now_ms(),
        )
        await self._store.add(stored)
        for old in [key for key in self._keys.values() if self._outlived(key)]:
            await self._store.remove(old.id)
        await self._reread()
        return kid, pair.private_pem

    def _outlived(self, key: StoredKey) -> bool:
        return self._clock.now_ms() > key.created_at_ms + self._rotate_ms + TOKEN_TTL_S_MAX * 1000

    async def _reread_if_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._read_at_s is None or now_s - self._read_at_s >= SIGNING_KEYS_REREAD_S:
            await self._reread()

    async def _reread(self) -> None:
        self._read_at_s = self._clock.monotonic_s()
        self._keys = {key.id: key for key in await self._store.all()}


def _place(kid: str) -> Place:
    return Place("", _FIELD, kid)  # of no tenant: they sign for all
