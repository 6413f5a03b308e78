"""A presented credential in, a principal out: with every request, so what was proved a moment ago is remembered.

Remembered by hash, for seconds: then the database is asked again, so what another control plane revoked or changed is
gone here within `CREDENTIAL_RECHECK_S`, and at once where its message arrives (`forget`).
"""

import asyncio
import hashlib
from collections.abc import Sequence

import structlog

from agentflow.clock import Clock
from agentflow.limits import CREDENTIAL_RECHECK_S, CREDENTIALS_REMEMBERED_MAX
from control_plane.identity import api_keys
from control_plane.identity.people import ApiKey, CredentialStore, Person
from control_plane.identity.principals import BadCredential, NoCredential, Principal
from control_plane.identity.signing_keys import SigningKeys
from control_plane.identity.tokens import Claims, TokenRules, key_id

_log = structlog.get_logger(__name__)


class Authenticator:
    def __init__(self, store: CredentialStore, keys: SigningKeys, rules: TokenRules, clock: Clock) -> None:
        self._store = store
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._remembered: dict[bytes, tuple[float, Principal]] = {}
        self._proving: dict[tuple[int, bytes], asyncio.Task[Principal]] = {}  # by generation
        self._generation = 0
        self.change = asyncio.Event()  # set once, at the next `forget`

    def recall(self, presented: str) -> Principal | None:
        """Whoever this credential proved to be, if that was seconds ago. What most requests need, and cheap."""
        found = self._remembered.get(_digest(presented))
        if found is None or self._clock.monotonic_s() >= found[0]:
            return None
        return found[1]

    async def authenticate(self, presented: str) -> Principal:
        """Raises `NoCredential` or `BadCredential`."""
        if not presented:
            raise NoCredential
        if (known := self.recall(presented)) is not None:
            return known
        # Fifty requests at once with a credential that is due again are one question to the database, not fifty.
        asked = self._generation, _digest(presented)
        proving = self._proving.get(asked)
        if proving is None:
            proving = self._proving[asked] = asyncio.create_task(self._proved(presented, *asked))
            proving.add_done_callback(lambda ended: (self._proving.pop(asked), ended.cancelled() or ended.exception()))
        return await asyncio.shield(proving)  # whoever asked first may leave; the others still wait for it

    async def _proved(self, presented: str, generation: int, digest: bytes) -> Principal:
        try:
            principal = await (self._by_key(presented) if api_keys.looks_like_key(presented) else self._by(presented))
        except BadCredential as error:
            _log.info("credential.refused", reason=error.reason)
            raise
        if generation == self._generation:  # nothing was revoked while we looked
            self._remember(digest, principal)
        return principal

    def forget(self) -> None:
        """Somebody's rights changed: prove everything again."""
        self._generation += 1
        self._remembered.clear()
        self.change.set()
        self.change = asyncio.Event()

    def _remember(self, digest: bytes, principal: Principal) -> None:
        good_s = CREDENTIAL_RECHECK_S
        if principal.expires_at_ms is not None:
            good_s = min(good_s, (principal.expires_at_ms - self._clock.now_ms()) / 1000)
        while len(self._remembered) >= CREDENTIALS_REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = (self._clock.monotonic_s() + good_s, principal)

    async def _by_key(self, presented: str) -> Principal:
        parts = api_keys.parse(presented)
        found = None if parts is None else await self._store.key(parts[0])
        if parts is None or found is None:
            raise BadCredential("unknown key")
        key, hashed = found
        if not api_keys.fits(parts[1], hashed):
            raise BadCredential("wrong secret")
        self._require_usable(key)
        person = _active(await self._store.person(key.tenant, key.user))
        return _principal(person, key.scopes, via_key=key.id, expires_at_ms=key.expires_at_ms)

    async def _by(self, presented: str) -> Principal:
        await self._keys.known(key_id(presented))
        claims = self._rules.verified(presented, self._keys.public, now_s=self._clock.now_ms() / 1000)
        if await self._store.token_revoked(claims.tenant, claims.id):
            raise BadCredential("revoked")
        if claims.key is not None:
            found = await self._store.key(claims.key)
            if found is None or found[0].tenant != claims.tenant:
                raise BadCredential("unknown key")
            self._require_usable(found[0])
        person = _active(await self._store.person(claims.tenant, claims.subject))
        if round(claims.issued_at_s * 1000) < person.tokens_after_ms:
            raise BadCredential("issued before all were ended")
        return _of_token(person, claims)

    def _require_usable(self, key: ApiKey) -> None:
        if not key.usable(self._clock.now_ms()):
            raise BadCredential("expired or revoked key")


def _active(person: Person | None) -> Person:
    if person is None or person.disabled_at_ms is not None:
        raise BadCredential("nobody")
    return person


def _of_token(person: Person, claims: Claims) -> Principal:
    return Principal(
        tenant=person.tenant,
        id=person.id,
        kind=person.kind,
        name=person.name,
        roles=tuple(role.name for role in person.roles),
        authority=person.authority(claims.scopes),
        via="token",
        credential=claims.id,
        expires_at_ms=claims.expires_at_s * 1000,
    )


def _principal(person: Person, scopes: Sequence[str] | None, *, via_key: str, expires_at_ms: int | None) -> Principal:
    return Principal(
        tenant=person.tenant,
        id=person.id,
        kind=person.kind,
        name=person.name,
        roles=tuple(role.name for role in person.roles),
        authority=person.authority(scopes),
        via="api_key",
        credential=via_key,
        expires_at_ms=expires_at_ms,
    )


def _digest(presented: str) -> bytes:
    """Memory holds no credential that could be sent again."""
    return hashlib.blake2b(presented.encode("utf-8", "surrogatepass"), digest_size=16).digest()
