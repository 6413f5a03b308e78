"""People, roles and keys of one tenant, as its admin sees them; implements `control_plane.identity.directory`."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.ids import TenantId
from control_plane.identity.people import ApiKey, Person
from control_plane.identity.permissions import Role
from control_plane.storage.database import Database
from control_plane.storage.people import api_key, bind, key_row, person_of, role_of, role_row, roles_of, user_row
from control_plane.storage.tables import api_keys, rbac_bindings, rbac_roles, users


class SqlDirectory:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def users(self, tenant: TenantId, *, kind: str) -> Sequence[Person]:
        people = select(users).where(users.c.tenant_id == tenant, users.c.kind == kind).order_by(users.c.id)
        bindings = select(rbac_bindings.c.user_id, rbac_bindings.c.role_id).where(rbac_bindings.c.tenant_id == tenant)
        async with self._database.read(tenant) as connection:
            found = (await connection.execute(people)).all()
            bound = (await connection.execute(bindings)).all()
            roles = {row.id: role_of(row) for row in await connection.execute(_roles(tenant))}
        held: dict[str, list[Role]] = defaultdict(list)
        for user, role in bound:
            held[user].append(roles[role])
        return [person_of(row, tuple(sorted(held[row.id], key=lambda role: role.name))) for row in found]

    async def person(self, tenant: TenantId, user: str) -> Person | None:
        async with self._database.read(tenant) as connection:
            query = select(users).where(users.c.tenant_id == tenant, users.c.id == user)
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else person_of(row, await roles_of(connection, tenant, user))

    async def add_user(self, person: Person, hashed_secret: str | None) -> bool:
        once = self._insert(users).on_conflict_do_nothing()
        async with self._database.write(person.tenant) as connection:
            if (await connection.execute(once, user_row(person, hashed_secret))).rowcount != 1:
                return False
            await bind(connection, person, [role.id for role in person.roles])
        return True

    async def change_user(self, person: Person, hashed_secret: str | None) -> None:
        values: dict[str, Any] = {
            "name": person.name,
            "disabled_at_ms": person.disabled_at_ms,
            "tokens_after_ms": person.tokens_after_ms,
        }
        if hashed_secret is not None:
            values["hashed_secret"] = hashed_secret
        whom = and_(users.c.tenant_id == person.tenant, users.c.id == person.id)
        async with self._database.write(person.tenant) as connection:
            await connection.execute(update(users).where(whom).values(values))
            await bind(connection, person, [role.id for role in person.roles])

    async def roles(self, tenant: TenantId) -> Sequence[Role]:
        async with self._database.read(tenant) as connection:
            return [role_of(row) for row in await connection.execute(_roles(tenant))]

    async def add_role(self, tenant: TenantId, role: Role) -> bool:
        once = self._insert(rbac_roles).on_conflict_do_nothing()
        async with self._database.write(tenant) as connection:
            return (await connection.execute(once, role_row(tenant, role, role.created_at_ms))).rowcount == 1

    async def change_role(self, tenant: TenantId, role: Role) -> None:
        row = role_row(tenant, role, role.created_at_ms)
        values = {name: row[name] for name in ("allowed_tools", "policies", "permissions")}
        which = and_(rbac_roles.c.tenant_id == tenant, rbac_roles.c.id == role.id)
        async with self._database.write(tenant) as connection:
            await connection.execute(update(rbac_roles).where(which).values(values))

    async def remove_role(self, tenant: TenantId, role: str) -> bool:
        holders = select(func.count()).where(rbac_bindings.c.tenant_id == tenant, rbac_bindings.c.role_id == role)
        async with self._database.write(tenant) as connection:
            if await connection.scalar(holders):
                return False
            which = and_(rbac_roles.c.tenant_id == tenant, rbac_roles.c.id == role)
            await connection.execute(delete(rbac_roles).where(which))
        return True

    async def keys(self, tenant: TenantId, user: str | None) -> Sequence[ApiKey]:
        query = select(api_keys).where(api_keys.c.tenant_id == tenant).order_by(api_keys.c.created_at_ms, api_keys.c.id)
        if user is not None:
            query = query.where(api_keys.c.user_id == user)
        async with self._database.read(tenant) as connection:
            return [api_key(row) for row in await connection.execute(query)]

    async def add_api_key(self, key: ApiKey, hashed_secret: str) -> bool:
        once = self._insert(api_keys).on_conflict_do_nothing()
        async with self._database.write(key.tenant) as connection:
            return (await connection.execute(once, key_row(key, hashed_secret))).rowcount == 1

    async def revoke_api_key(self, tenant: TenantId, key: str, now_ms: int) -> None:
        which = and_(api_keys.c.tenant_id == tenant, api_keys.c.id == key, api_keys.c.revoked_at_ms.is_(None))
        async with self._database.write(tenant) as connection:
            await connection.execute(update(api_keys).where(which).values(revoked_at_ms=now_ms))

    def _insert(self, table: Any) -> Any:
        return postgresql.insert(table) if self._database.engine == "postgresql" else sqlite.insert(table)


def _roles(tenant: TenantId) -> Any:
    return select(rbac_roles).where(rbac_roles.c.tenant_id == tenant).order_by(rbac_roles.c.name)
