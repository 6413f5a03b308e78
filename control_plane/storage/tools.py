"""Registered tools in the database; implements `control_plane.registry.tools.ToolStore`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, select
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.errors import Bug
from agentflow.ids import TenantId
from control_plane.registry.tools import RegisteredTool
from control_plane.storage.database import Database
from control_plane.storage.tables import tools


class SqlTools:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, tenant: TenantId, tool: RegisteredTool) -> RegisteredTool:
        row = {
            "tenant_id": tenant,
            "name": tool.name,
            "version": tool.version,
            "digest": tool.digest,
            "definition": tool.definition,
            "permissions": tool.spec.get("permissions", []),
            "cost_model": tool.spec.get("cost"),
            "created_at_ms": tool.created_at_ms,
        }
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_taken = insert(tools).on_conflict_do_nothing(index_elements=["tenant_id", "name", "version"])
        async with self._database.write(tenant) as connection:
            await connection.execute(unless_taken, row)
        stored = await self._all(tenant, tools.c.name == tool.name, tools.c.version == tool.version)
        if not stored:
            raise Bug(f"Tool {tool.name} {tool.version} was stored but cannot be read back.")
        return stored[0]

    async def versions(self, tenant: TenantId, name: str) -> Sequence[RegisteredTool]:
        return await self._all(tenant, tools.c.name == name)

    async def list(self, tenant: TenantId) -> Sequence[RegisteredTool]:
        return await self._all(tenant)

    async def by_digest(self, tenant: TenantId, digest: str) -> RegisteredTool | None:
        found = await self._all(tenant, tools.c.digest == digest)
        return found[0] if found else None

    async def _all(self, tenant: TenantId, *conditions: ColumnElement[bool]) -> Sequence[RegisteredTool]:
        query = select(tools).where(tools.c.tenant_id == tenant, *conditions)
        async with self._database.read(tenant) as connection:
            return [_tool(row) for row in await connection.execute(query)]


def _tool(row: Row[*tuple[Any, ...]]) -> RegisteredTool:
    return RegisteredTool(
        name=row.name,
        version=row.version,
        digest=row.digest,
        definition=row.definition,
        created_at_ms=row.created_at_ms,
    )
