"""Registered workflows in the database; implements `control_plane.registry.workflows.WorkflowStore`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, select, text, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.errors import Bug
from agentflow.ids import TenantId, WorkflowId
from control_plane.registry.versions import precedence
from control_plane.registry.workflows import (
    RegisteredWorkflow,
    WorkflowFilter,
    WorkflowOrder,
    WorkflowOvertaken,
    WorkflowSummary,
)
from control_plane.storage.database import Database, EngineName
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

    async def add(
        self, tenant: TenantId, workflow: RegisteredWorkflow, *, newest: str | None = None
    ) -> RegisteredWorkflow:
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
            if self._database.engine == "postgresql":  # SQLite has one writer by nature
                await connection.execute(_IN_TURN, {"name": f"workflow/{tenant}/{workflow.name}"})
            if newest is not None:
                await _ensure_newest(connection, tenant, workflow, newest)
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

    async def list(
        self,
        tenant: TenantId,
        wanted: WorkflowFilter,
        *,
        order: WorkflowOrder = "created_at",
        descending: bool = True,
        after: tuple[Any, ...] | None = None,
        limit: int,
    ) -> Sequence[WorkflowSummary]:
        columns = (workflows.c.name if order == "name" else workflows.c.created_at_ms, workflows.c.id)
        query = (
            select(*_SUMMARY)
            .where(_listed(self._database.engine, tenant, wanted))
            .order_by(*(column.desc() if descending else column for column in columns))
            .limit(limit)
        )
        if after is not None:
            place = tuple_(*columns)
            query = query.where(place < tuple_(*after) if descending else place > tuple_(*after))
        async with self._database.read(tenant) as connection:
            return [WorkflowSummary(**_summary(row)) for row in await connection.execute(query)]

    async def count(self, tenant: TenantId, wanted: WorkflowFilter) -> int:
        query = select(func.count()).select_from(workflows).where(_listed(self._database.engine, tenant, wanted))
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


# Whoever registers a version of a workflow waits for whoever does so now: what is newest must not change between.
_IN_TURN = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


async def _ensure_newest(
    connection: AsyncConnection, tenant: TenantId, workflow: RegisteredWorkflow, newest: str
) -> None:
    query = select(workflows.c.id, workflows.c.version, workflows.c.digest).where(
        workflows.c.tenant_id == tenant, workflows.c.name == workflow.name
    )
    known = max(await connection.execute(query), key=lambda row: precedence(row.version), default=None)
    if known is None or (known.id != newest and known.digest != workflow.digest):  # the same sent again is no change
        raise WorkflowOvertaken(workflow.name, known.version if known else None)


def _listed(engine: EngineName, tenant: TenantId, wanted: WorkflowFilter) -> ColumnElement[bool]:
    conditions = [workflows.c.tenant_id == tenant]
    if wanted.name is not None:
        conditions.append(workflows.c.name == wanted.name)
    if wanted.planner is not None:
        conditions.append(workflows.c.planner_type == wanted.planner)
    if wanted.tag is not None:
        conditions.append(tagged(engine, wanted.tag))
    return and_(*conditions)


def tagged(engine: EngineName, tag: str) -> ColumnElement[bool]:
    """Workflows whose definition has the tag."""
    if engine == "sqlite":
        tags = func.json_each(workflows.c.definition, "$.metadata.tags").table_valued("value")
        return select(tags.c.value).where(tags.c.value == tag).exists()
    found = workflows.c.definition["metadata"]["tags"]
    listed = func.json_array_elements_text(found).table_valued("value")
    return and_(func.json_typeof(found) == "array", select(listed.c.value).where(listed.c.value == tag).exists())


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
