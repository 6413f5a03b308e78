"""Registered workflows in the database; implements `control_plane.registry.workflows.WorkflowStore`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, select
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.errors import Bug
from agentflow.ids import TenantId, WorkflowId
from control_plane.registry.versions import precedence
from control_plane.registry.workflows import RegisteredWorkflow, WorkflowSummary
from control_plane.storage.database import Database
from control_plane.storage.tables import workflows

_SUMMARY = (
    workflows.c.id,
    workflows.c.tenant_id,
    workflows.c.name,
    workflows.c.version,
    workflows.c.digest,
    workflows.c.planner_type,
    workflows.c.created_at_ms,
)


class SqlWorkflows:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, tenant: TenantId, workflow: RegisteredWorkflow) -> RegisteredWorkflow:
        row = {
            "id": workflow.id,
            "tenant_id": tenant,
            "name": workflow.name,
            "version": workflow.version,
            "digest": workflow.digest,
            "planner_type": workflow.planner,
            "config_yaml": workflow.source,
            "definition": workflow.definition,
            "created_at_ms": workflow.created_at_ms,
        }
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_taken = insert(workflows).on_conflict_do_nothing(index_elements=["tenant_id", "name", "version"])
        async with self._database.write(tenant) as connection:
            await connection.execute(unless_taken, row)
        stored = await self.named(tenant, workflow.name, workflow.version)
        if stored is None:
            raise Bug(f"Workflow {workflow.id} was stored but cannot be read back.")
        return stored

    async def get(self, tenant: TenantId, workflow: WorkflowId) -> RegisteredWorkflow | None:
        return await self._one(tenant, workflows.c.id == workflow)

    async def named(self, tenant: TenantId, name: str, version: str) -> RegisteredWorkflow | None:
        return await self._one(tenant, and_(workflows.c.name == name, workflows.c.version == version))

    async def versions(self, tenant: TenantId, name: str) -> Sequence[str]:
        query = select(workflows.c.version).where(workflows.c.tenant_id == tenant, workflows.c.name == name)
        async with self._database.read(tenant) as connection:
            return (await connection.scalars(query)).all()

    async def latest(self, tenant: TenantId, name: str) -> RegisteredWorkflow | None:
        versions = await self.versions(tenant, name)
        return await self.named(tenant, name, max(versions, key=precedence)) if versions else None

    async def list(self, tenant: TenantId, *, name: str | None, limit: int) -> Sequence[WorkflowSummary]:
        query = (
            select(*_SUMMARY)
            .where(_listed(tenant, name))
            .order_by(workflows.c.created_at_ms.desc(), workflows.c.id.desc())
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            return [WorkflowSummary(**_summary(row)) for row in await connection.execute(query)]

    async def count(self, tenant: TenantId, *, name: str | None) -> int:
        query = select(func.count()).select_from(workflows).where(_listed(tenant, name))
        async with self._database.read(tenant) as connection:
            return await connection.scalar(query) or 0

    async def names(self, tenant: TenantId, *, limit: int) -> Sequence[str]:
        query = (
            select(workflows.c.name)
            .where(workflows.c.tenant_id == tenant)
            .distinct()
            .order_by(workflows.c.name)
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            return (await connection.scalars(query)).all()

    async def _one(self, tenant: TenantId, condition: ColumnElement[bool]) -> RegisteredWorkflow | None:
        query = select(*_SUMMARY, workflows.c.config_yaml, workflows.c.definition)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query.where(workflows.c.tenant_id == tenant, condition))).one_or_none()
        if row is None:
            return None
        return RegisteredWorkflow(**_summary(row), source=row.config_yaml, definition=row.definition)


def _listed(tenant: TenantId, name: str | None) -> ColumnElement[bool]:
    return and_(workflows.c.tenant_id == tenant, *(() if name is None else (workflows.c.name == name,)))


def _summary(row: Row[*tuple[Any, ...]]) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": row.tenant_id,
        "name": row.name,
        "version": row.version,
        "digest": row.digest,
        "planner": row.planner_type,
        "created_at_ms": row.created_at_ms,
    }
