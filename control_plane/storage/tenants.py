"""Tenants, and how much each uses; implements `control_plane.identity.tenants.TenantStore`. The system's own work."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.ids import TenantId
from agentflow.workflow.references import agents_named
from control_plane.identity.people import ApiKey, Person
from control_plane.identity.tenants import Quotas, Tenant
from control_plane.storage.database import Database
from control_plane.storage.people import add_key, bind, ensure_built_in_roles, user_row
from control_plane.storage.tables import cost_observations, executions, storage_use, tenants, users, workflows


class SqlTenants:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Sequence[Tenant]:
        async with self._database.system_read() as connection:
            return [_tenant(row) for row in await connection.execute(select(tenants).order_by(tenants.c.id))]

    async def get(self, tenant: TenantId) -> Tenant | None:
        async with self._database.system_read() as connection:
            row = (await connection.execute(select(tenants).where(tenants.c.id == tenant))).one_or_none()
        return None if row is None else _tenant(row)

    async def add(self, tenant: Tenant, admin: Person, key: ApiKey, hashed_secret: str) -> bool:
        insert_ = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        once = insert_(tenants).on_conflict_do_nothing(index_elements=["id"])
        async with self._database.system_write() as connection:
            if (await connection.execute(once, _row(tenant))).rowcount != 1:
                return False
            await ensure_built_in_roles(self._database.engine, connection, tenant.id, tenant.created_at_ms)
            await connection.execute(insert(users), user_row(admin))
            await bind(connection, admin, [role.id for role in admin.roles])
            await add_key(connection, key, hashed_secret)
        return True

    async def has_user(self, tenant: TenantId, user: str) -> bool:
        return (
            await self._count(
                select(func.count()).select_from(users).where(users.c.tenant_id == tenant, users.c.id == user)
            )
            > 0
        )

    async def change(self, tenant: Tenant) -> None:
        row = _row(tenant)
        values = {name: row[name] for name in ("name", "tier", "quotas")}
        async with self._database.system_write() as connection:
            await connection.execute(update(tenants).where(tenants.c.id == tenant.id).values(values))

    async def executions_since(self, tenant: TenantId, at_ms: int) -> int:
        return await self._count(
            select(func.count()).where(executions.c.tenant_id == tenant, executions.c.started_at_ms >= at_ms)
        )

    async def executions_open(self, tenant: TenantId) -> int:
        return await self._count(
            select(func.count()).where(executions.c.tenant_id == tenant, executions.c.ended_at_ms.is_(None))
        )

    async def microdollars_since(self, tenant: TenantId, at_ms: int) -> int:
        spent = cost_observations
        return await self._count(
            select(func.sum(spent.c.microdollars)).where(spent.c.tenant_id == tenant, spent.c.at_ms >= at_ms)
        )

    async def storage_bytes(self, tenant: TenantId) -> int:
        """As counted last; see `storage_counts`. What is not counted yet is nothing."""
        return await self._count(select(storage_use.c.bytes).where(storage_use.c.tenant_id == tenant))

    async def workflow_names(self, tenant: TenantId) -> Sequence[str]:
        query = select(workflows.c.name).where(workflows.c.tenant_id == tenant).distinct()
        async with self._database.system_read() as connection:
            return (await connection.scalars(query)).all()

    async def agents_named(self, tenant: TenantId) -> frozenset[str]:
        query = select(workflows.c.definition).where(workflows.c.tenant_id == tenant)
        found: set[str] = set()
        async with self._database.system_read() as connection:
            for definition in await connection.scalars(query):
                found |= agents_named(definition)
        return frozenset(found)

    async def _count(self, query: Select[Any]) -> int:
        async with self._database.system_read() as connection:
            return int(await connection.scalar(query) or 0)


def _tenant(row: Any) -> Tenant:
    known = {name: row.quotas[name] for name in Quotas.__struct_fields__ if name in row.quotas}
    return Tenant(row.id, row.name, row.tier, msgspec.convert(known, Quotas), row.created_at_ms)


def _row(tenant: Tenant) -> dict[str, Any]:
    return {
        "id": tenant.id,
        "name": tenant.name,
        "tier": tenant.tier,
        "quotas": msgspec.to_builtins(tenant.quotas),
        "created_at_ms": tenant.created_at_ms,
    }
