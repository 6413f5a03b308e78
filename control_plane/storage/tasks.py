"""What waits for people, over all executions of a tenant; the table is kept in step by every append."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, cast, func, select, tuple_

from agentflow.execution.events import TaskOpened, decode
from agentflow.ids import ExecutionId, StepPath, TenantId
from control_plane.registry.tasks import OpenTask, TaskPlace
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import event_store, executions, human_tasks


class SqlTasks:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal

    async def list_open(
        self, tenant: TenantId, *, after: TaskPlace | None = None, limit: int, newest_first: bool = False
    ) -> Sequence[OpenTask]:
        """Whoever waits longest comes first. `after` is the place of the last one of the page before."""
        place = (human_tasks.c.opened_at_ms, human_tasks.c.execution_id, human_tasks.c.path)
        query = select(*place, human_tasks.c.version).where(
            human_tasks.c.tenant_id == tenant, human_tasks.c.ended_at_ms.is_(None)
        )
        if after is not None:
            query = query.where(tuple_(*place) < after if newest_first else tuple_(*place) > after)
        page = _ordered(query, place, newest_first=newest_first).limit(limit).subquery()
        opening = and_(event_store.c.execution_id == page.c.execution_id, event_store.c.version == page.c.version)
        told = (
            select(page, executions.c.workflow_name, cast(event_store.c.event_data, Text).label("data"))
            .join_from(page, event_store, opening)
            .join(executions, executions.c.id == page.c.execution_id)
            .where(event_store.c.tenant_id == tenant, executions.c.tenant_id == tenant)
        )
        columns = (page.c.opened_at_ms, page.c.execution_id, page.c.path)
        async with self._database.read(tenant) as connection:
            rows = (await connection.execute(_ordered(told, columns, newest_first=newest_first))).all()
        return [
            OpenTask(
                ExecutionId(row.execution_id),
                StepPath(row.path),
                row.workflow_name,
                row.opened_at_ms,
                self._task(tenant, row.execution_id, row.version, row.data),
            )
            for row in rows
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


def _ordered(query: Select[Any], place: Sequence[ColumnElement[Any]], *, newest_first: bool) -> Select[Any]:
    return query.order_by(*(column.desc() if newest_first else column for column in place))
