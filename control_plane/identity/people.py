"""The people, service accounts and keys that identity remembers, and the store it needs for them."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from agentflow.ids import DEFAULT_TENANT, TenantId
from control_plane.identity.permissions import Authority, Role, authority
from control_plane.identity.principals import Kind

# The tenant that runs the deployment: its admins may make and change the others.
DEPLOYMENT_TENANT = DEFAULT_TENANT


class Person(msgspec.Struct, frozen=True):
    """Somebody, or something: a service account differs in having keys only and no password."""

    tenant: TenantId
    id: str
    kind: Kind
    name: str
    email: str | None
    created_at_ms: int
    disabled_at_ms: int | None = None
    tokens_after_ms: int = 0  # tokens issued before this moment are void
    roles: tuple[Role, ...] = ()

    def authority(self, scopes: Sequence[str] | None = None) -> Authority:
        return authority(self.roles, runs_the_deployment=self.tenant == DEPLOYMENT_TENANT, scopes=scopes)


class ApiKey(msgspec.Struct, frozen=True):
    id: str
    tenant: TenantId
    user: str
    name: str
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    scopes: tuple[str, ...] | None = None

    def usable(self, now_ms: int) -> bool:
        return self.revoked_at_ms is None and (self.expires_at_ms is None or now_ms < self.expires_at_ms)


class CredentialStore(Protocol):
    """What one login or one request needs to know. Asked before anybody's tenant is proved."""

    async def person(self, tenant: TenantId, user: str) -> Person | None: ...

    async def by_email(self, tenant: TenantId, email: str) -> tuple[Person, str | None] | None:
        """The person and the hash of their password."""
        ...

    async def by_outside_subject(self, tenant: TenantId, subject: str) -> Person | None: ...

    async def link(self, tenant: TenantId, user: str, subject: str) -> None:
        """From now on this subject of another issuer is that person."""
        ...

    async def key(self, key_id: str) -> tuple[ApiKey, str] | None:
        """The key and the hash of its secret, whichever tenant it is of."""
        ...

    async def revoke_token(self, tenant: TenantId, token: str, expires_at_ms: int) -> None: ...

    async def token_revoked(self, tenant: TenantId, token: str) -> bool: ...
