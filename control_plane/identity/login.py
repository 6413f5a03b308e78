"""Credentials in, tokens out: from a password, an API key, or a token of another issuer; and the way back.

Whatever is wrong with a credential, the answer is the same and takes about as long.
"""

import structlog

from agentflow.clock import Clock
from agentflow.ids import TenantId, UlidSource
from agentflow.limits import TOKEN_TTL_S_MAX
from control_plane.audit.notes import concerning
from control_plane.identity import api_keys
from control_plane.identity.federation import Federation
from control_plane.identity.passwords import Passwords
from control_plane.identity.people import CredentialStore, Person
from control_plane.identity.principals import BadCredential, Principal
from control_plane.identity.signing_keys import SigningKeys
from control_plane.identity.slow_down import ADDRESS, SlowDown
from control_plane.identity.tokens import Claims, TokenRules

_log = structlog.get_logger(__name__)


class Login:
    def __init__(
        self,
        *,
        store: CredentialStore,
        keys: SigningKeys,
        rules: TokenRules,
        passwords: Passwords,
        federation: Federation | None,
        clock: Clock,
        ids: UlidSource,
        ttl_s: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._rules = rules
        self._passwords = passwords
        self._federation = federation
        self._clock = clock
        self._ids = ids
        self._ttl_s = ttl_s
        self._slow_down = SlowDown(clock)

    async def by_password(
        self, tenant: TenantId, email: str, password: str, *, source: str, ttl_s: int | None = None
    ) -> tuple[str, Claims]:
        """`source` is the address the attempt comes from, as it is counted."""
        whom = (f"account {tenant}/{email.casefold()}", f"{ADDRESS}{source}")
        self._slow_down.check(whom)
        found = await self._store.by_email(tenant, email)
        person, hashed = (None, None) if found is None else found
        fits = await self._passwords.fits(password, hashed)
        if person is None or not fits or person.disabled_at_ms is not None:
            self._slow_down.failed(whom)
            _log.info("login.refused", how="password", tenant=tenant)
            raise BadCredential("password")
        self._slow_down.succeeded(whom[:1])
        return await self._issue(person, ttl_s)

    async def by_key(self, presented: str, *, ttl_s: int | None = None) -> tuple[str, Claims]:
        parts = api_keys.parse(presented)
        found = None if parts is None else await self._store.key(parts[0])
        if parts is None or found is None or not api_keys.fits(parts[1], found[1]):
            _log.info("login.refused", how="api_key")
            raise BadCredential("api key")
        key = found[0]
        person = await self._store.person(key.tenant, key.user)
        if person is None or person.disabled_at_ms is not None or not key.usable(self._clock.now_ms()):
            raise BadCredential("api key")
        return await self._issue(person, ttl_s, scopes=key.scopes, key=key.id)

    async def by_outside_token(self, tenant: TenantId, token: str, *, ttl_s: int | None = None) -> tuple[str, Claims]:
        """An ID token of the configured issuer, for whoever it names in that tenant."""
        if self._federation is None:
            raise BadCredential("no issuer is configured")
        outside = await self._federation.verified(token)
        person = await self._store.by_outside_subject(tenant, outside.subject)
        if person is None and outside.email is not None:
            # Invited by mail address, and here for the first time.
            found = await self._store.by_email(tenant, outside.email)
            if found is not None and found[0].kind == "person":
                person = found[0]
                await self._store.link(tenant, person.id, outside.subject)
        if person is None or person.disabled_at_ms is not None:
            _log.info("login.refused", how="oidc", tenant=tenant)
            raise BadCredential("nobody")
        return await self._issue(person, ttl_s)

    async def logout(self, principal: Principal) -> bool:
        """End the token this was asked with; an API key is ended by revoking it."""
        if principal.via != "token" or principal.expires_at_ms is None:
            return False
        concerning("token", principal.credential)
        await self._store.revoke_token(principal.tenant, principal.credential, principal.expires_at_ms)
        return True

    async def _issue(
        self, person: Person, ttl_s: int | None, *, scopes: tuple[str, ...] | None = None, key: str | None = None
    ) -> tuple[str, Claims]:
        kid, private_pem = await self._keys.current()
        now_ms = self._clock.now_ms()
        claims = Claims(
            id=f"tok_{self._ids.ulid()}",
            tenant=person.tenant,
            subject=person.id,
            issued_at_s=now_ms / 1000,
            expires_at_s=now_ms // 1000 + min(ttl_s or self._ttl_s, TOKEN_TTL_S_MAX),
            scopes=scopes,
            key=key,
        )
        return self._rules.sign(claims, kid=kid, private_pem=private_pem), claims
