"""The list of executions as people browse it, from the table that every append keeps in step with the events."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, select

from agentflow.ids import ExecutionId, TenantId
from control_plane.registry.executions import ExecutionSummary
from control_plane.storage.database import Database
from control_plane.storage.tables import executions

_SUMMARY = (
    executions.c.id,
    executions.c.workflow_name,
    executions.c.workflow_version,
    executions.c.status,
    executions.c.started_at_ms,
    executions.c.ended_at_ms,
    executions.c.trace_id,
)


class SqlExecutions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, tenant: TenantId, *, workflow: str | None = None, status: str | None = None, limit: int
    ) -> Sequence[ExecutionSummary]:
        """Newest first. `workflow` is a name."""
        query = (
            select(*_SUMMARY)
            .where(_listed(tenant, workflow, status))
            .order_by(executions.c.started_at_ms.desc(), executions.c.id.desc())
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            return [_summary(row) for row in await connection.execute(query)]

    async def count(self, tenant: TenantId, *, workflow: str | None = None, status: str | None = None) -> int:
        query = select(func.count()).select_from(executions).where(_listed(tenant, workflow, status))
        async with self._database.read(tenant) as connection:
            return await connection.scalar(query) or 0

    async def get(self, tenant: TenantId, execution: ExecutionId) -> ExecutionSummary | None:
        query = select(*_SUMMARY).where(executions.c.tenant_id == tenant, executions.c.id == execution)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _summary(row)


def _listed(tenant: TenantId, workflow: str | None, status: str | None) -> ColumnElement[bool]:
    conditions = [executions.c.tenant_id == tenant]
    if workflow is not None:
        conditions.append(executions.c.workflow_name == workflow)
    if status is not None:
        conditions.append(executions.c.status == status)
    return and_(*conditions)


def _summary(row: Row[*tuple[Any, ...]]) -> ExecutionSummary:
    return ExecutionSummary(
        id=row.id,
        workflow=row.workflow_name,
        version=row.workflow_version,
        status=row.status,
        started_at_ms=row.started_at_ms,
        ended_at_ms=row.ended_at_ms,
        trace=row.trace_id,
    )
