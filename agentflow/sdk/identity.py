"""Logging in, and everything an admin does about people, roles, keys and tenants: `client.identity`."""

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import msgspec

_Answer = TypeVar("_Answer")


class Token(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int
    expires_at: str
    tenant: str
    user: str

    def __repr__(self) -> str:
        return f"Token({self.user} of {self.tenant}, until {self.expires_at})"


class CredentialInfo(msgspec.Struct, frozen=True):
    via: str
    id: str
    expires_at: str | None = None


class Whoami(msgspec.Struct, frozen=True):
    tenant: str
    user: str
    kind: str
    name: str
    roles: list[str]
    permissions: list[str]
    allowed_tools: list[str]
    allowed_workflows: list[str]
    credential: CredentialInfo


class Asking(Protocol):
    """What this needs of a client: one request, and its answer in a shape."""

    def __call__(
        self, method: str, path: str, shape: type[_Answer], body: dict[str, Any] | None = None
    ) -> Awaitable[_Answer]: ...


class IdentityOperations:
    def __init__(self, ask: Asking) -> None:
        self._ask = ask

    async def login(self, *, email: str, password: str, tenant: str | None = None, ttl_s: int | None = None) -> Token:
        return await self._token(grant_type="password", email=email, password=password, tenant=tenant, ttl_s=ttl_s)

    async def exchange_api_key(self, api_key: str, *, ttl_s: int | None = None) -> Token:
        return await self._token(grant_type="api_key", api_key=api_key, ttl_s=ttl_s)

    async def exchange_id_token(self, id_token: str, *, tenant: str | None = None, ttl_s: int | None = None) -> Token:
        """A token of the OpenID Connect issuer that the deployment trusts."""
        return await self._token(grant_type="oidc", id_token=id_token, tenant=tenant, ttl_s=ttl_s)

    async def whoami(self) -> Whoami:
        return await self._ask("GET", "/auth/whoami", Whoami)

    async def logout(self) -> None:
        """End the token this client sends; an API key is not ended by it."""
        await self._ask("POST", "/auth/logout", dict)

    async def _token(self, **grant: str | int | None) -> Token:
        given = {name: value for name, value in grant.items() if value is not None}
        return await self._ask("POST", "/auth/token", Token, given)
