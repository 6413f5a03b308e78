"""What waits for people, over all executions of a tenant; the table is kept in step by every append."""

from collections.abc import Sequence

from sqlalchemy import Text, and_, cast, func, select, tuple_

from agentflow.execution.events import TaskOpened, decode
from agentflow.ids import ExecutionId, StepPath, TenantId
from control_plane.registry.tasks import OpenTask
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import event_store, executions, human_tasks


class SqlTasks:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal

    async def list_open(self, tenant: TenantId, *, after: OpenTask | None = None, limit: int) -> Sequence[OpenTask]:
        """Whoever waits longest comes first. `after` is the last one of the page before."""
        order = (human_tasks.c.opened_at_ms, human_tasks.c.execution_id, human_tasks.c.path)
        query = (
            select(*order, human_tasks.c.version)
            .where(human_tasks.c.tenant_id == tenant, human_tasks.c.ended_at_ms.is_(None))
            .order_by(*order)
            .limit(limit)
        )
        if after is not None:
            query = query.where(tuple_(*order) > (after.opened_at_ms, after.execution, after.path))
        page = query.subquery()
        told = (
            select(
                page.c.execution_id,
                page.c.path,
                executions.c.workflow_name,
                page.c.opened_at_ms,
                page.c.version,
                cast(event_store.c.event_data, Text),
            )
            .join_from(
                page,
                event_store,
                and_(event_store.c.execution_id == page.c.execution_id, event_store.c.version == page.c.version),
            )
            .join(executions, executions.c.id == page.c.execution_id)
            .where(event_store.c.tenant_id == tenant, executions.c.tenant_id == tenant)
            .order_by(page.c.opened_at_ms, page.c.execution_id, page.c.path)
        )
        async with self._database.read(tenant) as connection:
            rows = (await connection.execute(told)).all()
        return [
            OpenTask(ExecutionId(execution), StepPath(path), workflow, opened_at_ms, self._task(tenant, *where))
            for execution, path, workflow, opened_at_ms, *where in ((*row[:4], row[0], row[4], row[5]) for row in rows)
        ]

    def _task(self, tenant: TenantId, execution: str, version: int, data: str) -> dict[str, object]:
        event = decode(self._seal.opened_event(tenant, execution, version, data))
        return event.task if isinstance(event, TaskOpened) else {}

    async def count_open(self, tenant: TenantId) -> int:
        query = (
            select(func.count())
            .select_from(human_tasks)
            .where(human_tasks.c.tenant_id == tenant, human_tasks.c.ended_at_ms.is_(None))
        )
        async with self._database.read(tenant) as connection:
            return await connection.scalar(query) or 0
