"""Who may log in, and with what; implements the stores of `control_plane.identity`.

Credentials are looked up before anybody's tenant is proved, so those queries are the system's own; each still names
the tenant it is about.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.clock import Clock
from agentflow.ids import TenantId
from control_plane.identity.people import ApiKey, Person
from control_plane.identity.permissions import BUILT_IN, Permission, Role, built_in_role
from control_plane.storage.database import Database
from control_plane.storage.tables import api_keys, rbac_bindings, rbac_roles, revoked_tokens, users

_PERMISSIONS = frozenset(Permission)


class SqlPeople:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def person(self, tenant: TenantId, user: str) -> Person | None:
        found = await self._found(tenant, users.c.id == user)
        return None if found is None else found[0]

    async def by_email(self, tenant: TenantId, email: str) -> tuple[Person, str | None] | None:
        return await self._found(tenant, users.c.email == email.casefold())

    async def by_outside_subject(self, tenant: TenantId, subject: str) -> Person | None:
        found = await self._found(tenant, users.c.outside_subject == subject)
        return None if found is None else found[0]

    async def link(self, tenant: TenantId, user: str, subject: str) -> None:
        of_whom = and_(users.c.tenant_id == tenant, users.c.id == user, users.c.outside_subject.is_(None))
        async with self._database.system_write() as connection:
            await connection.execute(update(users).where(of_whom).values(outside_subject=subject))

    async def key(self, key_id: str) -> tuple[ApiKey, str] | None:
        async with self._database.system_read() as connection:
            row = (await connection.execute(select(api_keys).where(api_keys.c.id == key_id))).one_or_none()
        return None if row is None else (api_key(row), row.hashed_secret)

    async def revoke_token(self, tenant: TenantId, token: str, expires_at_ms: int) -> None:
        insert_ = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        once = insert_(revoked_tokens).on_conflict_do_nothing(index_elements=["tenant_id", "id"])
        outlived = revoked_tokens.c.expires_at_ms < self._clock.now_ms()
        async with self._database.system_write() as connection:
            await connection.execute(once, {"tenant_id": tenant, "id": token, "expires_at_ms": expires_at_ms})
            await connection.execute(delete(revoked_tokens).where(outlived))

    async def token_revoked(self, tenant: TenantId, token: str) -> bool:
        query = select(revoked_tokens.c.id).where(revoked_tokens.c.tenant_id == tenant, revoked_tokens.c.id == token)
        async with self._database.system_read() as connection:
            return (await connection.execute(query)).one_or_none() is not None

    async def add_first(self, person: Person, key: ApiKey, hashed_secret: str) -> bool:
        async with self._database.system_write() as connection:
            await ensure_built_in_roles(self._database.engine, connection, person.tenant, self._clock.now_ms())
            if await connection.scalar(select(func.count()).select_from(users)):
                return False
            if not await _added(self._database.engine, connection, person):
                return False  # another control plane, at this moment
            await bind(connection, person, ["admin"])
            await add_key(connection, key, hashed_secret)
            return True

    async def replace_key(self, key: ApiKey, hashed_secret: str) -> bool:
        of_whom = and_(api_keys.c.tenant_id == key.tenant, api_keys.c.user_id == key.user)
        known = select(users.c.id).where(users.c.tenant_id == key.tenant, users.c.id == key.user)
        async with self._database.system_write() as connection:
            if (await connection.execute(known)).one_or_none() is None:
                return False
            still = and_(of_whom, api_keys.c.revoked_at_ms.is_(None))
            await connection.execute(update(api_keys).where(still).values(revoked_at_ms=key.created_at_ms))
            await add_key(connection, key, hashed_secret)
            return True

    async def _found(self, tenant: TenantId, condition: ColumnElement[bool]) -> tuple[Person, str | None] | None:
        async with self._database.system_read() as connection:
            row = (await connection.execute(select(users).where(users.c.tenant_id == tenant, condition))).one_or_none()
            if row is None:
                return None
            return person_of(row, await roles_of(connection, tenant, row.id)), row.hashed_secret


async def _added(engine: str, connection: AsyncConnection, person: Person) -> bool:
    insert_ = postgresql.insert if engine == "postgresql" else sqlite.insert
    once = insert_(users).on_conflict_do_nothing(index_elements=["tenant_id", "id"])
    return (await connection.execute(once, user_row(person))).rowcount == 1


async def ensure_built_in_roles(engine: str, connection: AsyncConnection, tenant: TenantId, now_ms: int) -> None:
    """Bindings point to rows; what a built-in role allows is in the code."""
    insert_ = postgresql.insert if engine == "postgresql" else sqlite.insert
    # Whichever constraint: of two that start at once, one may meet the other's name before its id.
    once = insert_(rbac_roles).on_conflict_do_nothing()
    await connection.execute(once, [role_row(tenant, built_in_role(name), now_ms) for name in BUILT_IN])


async def bind(connection: AsyncConnection, person: Person, roles: Sequence[str]) -> None:
    """The person has exactly these roles from now on."""
    of_whom = and_(rbac_bindings.c.tenant_id == person.tenant, rbac_bindings.c.user_id == person.id)
    await connection.execute(delete(rbac_bindings).where(of_whom))
    rows = [
        {"tenant_id": person.tenant, "user_id": person.id, "role_id": role, "created_at_ms": person.created_at_ms}
        for role in sorted(set(roles))
    ]
    if rows:
        await connection.execute(insert(rbac_bindings), rows)


async def add_key(connection: AsyncConnection, key: ApiKey, hashed_secret: str) -> None:
    await connection.execute(insert(api_keys), key_row(key, hashed_secret))


def key_row(key: ApiKey, hashed_secret: str) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant_id": key.tenant,
        "user_id": key.user,
        "name": key.name,
        "hashed_secret": hashed_secret,
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "revoked_at_ms": key.revoked_at_ms,
        "scopes": None if key.scopes is None else list(key.scopes),
    }


async def roles_of(connection: AsyncConnection, tenant: TenantId, user: str) -> tuple[Role, ...]:
    query = (
        select(rbac_roles)
        .join(
            rbac_bindings,
            and_(rbac_bindings.c.tenant_id == rbac_roles.c.tenant_id, rbac_bindings.c.role_id == rbac_roles.c.id),
        )
        .where(rbac_bindings.c.tenant_id == tenant, rbac_bindings.c.user_id == user)
        .order_by(rbac_roles.c.name)
    )
    return tuple(role_of(row) for row in await connection.execute(query))


def user_row(person: Person, hashed_secret: str | None = None) -> dict[str, Any]:
    return {
        "tenant_id": person.tenant,
        "id": person.id,
        "kind": person.kind,
        "email": None if person.email is None else person.email.casefold(),
        "hashed_secret": hashed_secret,
        "created_at_ms": person.created_at_ms,
        "disabled_at_ms": person.disabled_at_ms,
        "name": person.name,
        "tokens_after_ms": person.tokens_after_ms,
    }


def person_of(row: Any, roles: tuple[Role, ...] = ()) -> Person:
    return Person(
        tenant=row.tenant_id,
        id=row.id,
        kind=row.kind,
        name=row.name or row.email or row.id,
        email=row.email,
        created_at_ms=row.created_at_ms,
        disabled_at_ms=row.disabled_at_ms,
        tokens_after_ms=row.tokens_after_ms or 0,
        roles=roles,
    )


def api_key(row: Any) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant=row.tenant_id,
        user=row.user_id,
        name=row.name,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
        scopes=None if row.scopes is None else tuple(row.scopes),
    )


def role_of(row: Any) -> Role:
    if row.id in BUILT_IN:
        return built_in_role(row.id)
    allowed = tuple(row.allowed_tools)
    workflows = row.policies.get("workflows")
    return Role(
        id=row.id,
        name=row.name,
        # A permission that this release does not know allows nothing.
        permissions=frozenset(Permission(name) for name in row.permissions or () if name in _PERMISSIONS),
        tools=None if "*" in allowed else allowed,
        workflows=None if workflows is None else tuple(workflows),
        created_at_ms=row.created_at_ms,
    )


def role_row(tenant: TenantId, role: Role, now_ms: int) -> dict[str, Any]:
    return {
        "tenant_id": tenant,
        "id": role.id,
        "name": role.name,
        "allowed_tools": ["*"] if role.tools is None else list(role.tools),
        "policies": {} if role.workflows is None else {"workflows": list(role.workflows)},
        "created_at_ms": now_ms,
        "permissions": None if role.built_in else sorted(role.permissions),
    }
