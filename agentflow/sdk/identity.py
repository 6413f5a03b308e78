"""Logging in, and everything an admin does about people, roles, keys and tenants: `client.identity`."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from agentflow.limits import LIST_PAGE_MAX
from agentflow.sdk.requests import Ask, given, new_key, pages, segment

_Item = TypeVar("_Item")


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


class User(msgspec.Struct, frozen=True):
    id: str
    kind: str
    name: str
    email: str | None
    roles: list[str]
    disabled: bool
    created_at: str


class Role(msgspec.Struct, frozen=True):
    id: str
    name: str
    built_in: bool
    permissions: list[str]
    allowed_tools: list[str]
    policies: dict[str, Any]


class ApiKey(msgspec.Struct, frozen=True):
    id: str
    name: str
    user: str
    scopes: list[str] | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    key: str | None = None  # the whole key: only in the answer that made it

    def __repr__(self) -> str:
        return f"ApiKey({self.id})"


class FirstAdmin(msgspec.Struct, frozen=True):
    user: str
    api_key: str

    def __repr__(self) -> str:
        return f"FirstAdmin({self.user})"


class Tenant(msgspec.Struct, frozen=True):
    id: str
    name: str
    tier: str
    quotas: dict[str, float | None]
    created_at: str
    admin: FirstAdmin | None = None  # only in the answer that made it


class TenantUse(msgspec.Struct, frozen=True):
    agents: int
    workflows: int
    executions_today: int
    executions_open: int
    dollars_this_month: float
    storage_bytes: int


class Listed(msgspec.Struct, Generic[_Item], frozen=True):
    items: list[_Item]
    next_cursor: str | None = None


class IdentityOperations:
    def __init__(self, ask: Ask) -> None:
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
        return await self._ask("POST", "/auth/token", Token, given(**grant))

    async def users(self) -> list[User]:
        return await self._all("/users", User)

    async def user(self, user: str) -> User:
        return await self._ask("GET", f"/users/{segment(user)}", User)

    async def add_user(
        self, email: str, *, name: str = "", password: str | None = None, roles: Sequence[str] = ()
    ) -> User:
        body = {"email": email, "name": name, "password": password, "roles": list(roles)}
        return await self._ask("POST", "/users", User, body, key=new_key())

    async def change_user(
        self,
        user: str,
        *,
        name: str | None = None,
        password: str | None = None,
        disabled: bool | None = None,
        roles: Sequence[str] | None = None,
    ) -> User:
        """What is left out stays; `roles` are all that they have from now on."""
        bound = None if roles is None else list(roles)
        body = given(name=name, password=password, disabled=disabled, roles=bound)
        return await self._ask("PATCH", f"/users/{segment(user)}", User, body)

    async def service_accounts(self) -> list[User]:
        return await self._all("/service-accounts", User)

    async def add_service_account(self, name: str, *, roles: Sequence[str] = ()) -> User:
        body = {"name": name, "roles": list(roles)}
        return await self._ask("POST", "/service-accounts", User, body, key=new_key())

    async def roles(self) -> list[Role]:
        return await self._all("/roles", Role)

    async def add_role(
        self,
        name: str,
        permissions: Sequence[str],
        *,
        allowed_tools: Sequence[str] = ("*",),
        workflows: Sequence[str] | None = None,
    ) -> Role:
        body = {"name": name, **_role(permissions, allowed_tools, workflows)}
        return await self._ask("POST", "/roles", Role, body, key=new_key())

    async def change_role(
        self,
        role: str,
        permissions: Sequence[str],
        *,
        allowed_tools: Sequence[str] = ("*",),
        workflows: Sequence[str] | None = None,
    ) -> Role:
        body = _role(permissions, allowed_tools, workflows)
        return await self._ask("PUT", f"/roles/{segment(role)}", Role, body)

    async def remove_role(self, role: str) -> None:
        await self._ask("DELETE", f"/roles/{segment(role)}", type(None))

    async def api_keys(self) -> list[ApiKey]:
        """Your own; everybody's for who may see users."""
        return await self._all("/api-keys", ApiKey)

    async def add_api_key(
        self,
        name: str,
        *,
        user: str | None = None,
        scopes: Sequence[str] | None = None,
        expires_in_s: int | None = None,
    ) -> ApiKey:
        """The answer is the only place where `key` is ever shown."""
        limited = None if scopes is None else list(scopes)
        body = {"name": name, **given(user=user, scopes=limited, expires_in_s=expires_in_s)}
        return await self._ask("POST", "/api-keys", ApiKey, body)

    async def revoke_api_key(self, key: str) -> None:
        await self._ask("DELETE", f"/api-keys/{segment(key)}", type(None))

    async def tenants(self) -> list[Tenant]:
        return await self._all("/tenants", Tenant)

    async def tenant(self, tenant: str) -> Tenant:
        return await self._ask("GET", f"/tenants/{segment(tenant)}", Tenant)

    async def tenant_use(self, tenant: str) -> TenantUse:
        return await self._ask("GET", f"/tenants/{segment(tenant)}/usage", TenantUse)

    async def add_tenant(
        self, tenant: str, *, name: str | None = None, quotas: dict[str, float] | None = None
    ) -> Tenant:
        """The answer is the only place where the key of its first admin is shown."""
        return await self._ask("POST", "/tenants", Tenant, {"id": tenant, **given(name=name, quotas=quotas)})

    async def change_tenant(
        self, tenant: str, *, name: str | None = None, quotas: dict[str, float] | None = None
    ) -> Tenant:
        """`quotas` are given as a whole."""
        return await self._ask("PATCH", f"/tenants/{segment(tenant)}", Tenant, given(name=name, quotas=quotas))

    async def _all(self, path: str, shape: type[_Item]) -> list[_Item]:
        """Every page of a list."""

        async def page(cursor: str | None) -> Listed[_Item]:
            after = "" if cursor is None else f"&cursor={cursor}"
            return await self._ask("GET", f"{path}?limit={LIST_PAGE_MAX}{after}", Listed[shape])  # type: ignore[valid-type]

        return [item async for found in pages(page) for item in found.items]


def _role(permissions: Sequence[str], tools: Sequence[str], workflows: Sequence[str] | None) -> dict[str, Any]:
    policies = {"workflows": None if workflows is None else list(workflows)}
    return {"permissions": list(permissions), "allowed_tools": list(tools), "policies": policies}
