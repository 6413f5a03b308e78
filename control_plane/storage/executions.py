"""The list of executions as people browse it, from the table that every append keeps in step with the events.

Pages begin behind a row, never at a number of rows, so that what starts meanwhile moves nothing. Attributes of the
input are looked for in the events themselves, which may be sealed: row by row, and at most so many rows for one page.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Text, and_, cast, func, select, tuple_

from agentflow.execution.events import ExecutionStarted, decode
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import LIST_COUNT_MAX, LIST_LOOKED_AT_MAX, LIST_PAGE_MAX
from control_plane.registry.executions import (
    ExecutionFilter,
    ExecutionPage,
    ExecutionPlace,
    ExecutionSummary,
    ListedWorkflow,
    attributes_fit,
)
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import event_store, executions, workflows
from control_plane.storage.workflows import tagged

_SUMMARY = (
    executions.c.id,
    executions.c.workflow_id,
    executions.c.workflow_name,
    executions.c.workflow_version,
    executions.c.status,
    executions.c.started_at_ms,
    executions.c.ended_at_ms,
    executions.c.trace_id,
)
_NOTHING = ExecutionFilter()


class SqlExecutions:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal

    async def page(
        self,
        tenant: TenantId,
        wanted: ExecutionFilter = _NOTHING,
        *,
        limit: int,
        after: ExecutionPlace | None = None,
        newest_first: bool = True,
    ) -> ExecutionPage:
        """With attributes wanted it may be short, even empty, and still not be the last: see `reached`."""
        fits = _fits(tenant, wanted, await self._tagged(tenant, wanted.tag))
        if wanted.attributes:
            return await self._looked_through(tenant, fits, wanted.attributes, limit, after, newest_first=newest_first)
        query = _listed(select(*_SUMMARY).where(fits), after, newest_first=newest_first).limit(limit + 1)
        async with self._database.read(tenant) as connection:
            rows = (await connection.execute(query)).all()
        shown = tuple(_summary(row) for row in rows[:limit])
        return ExecutionPage(shown, _place(rows[limit - 1]) if len(rows) > limit else None)

    async def _looked_through(
        self,
        tenant: TenantId,
        fits: ColumnElement[bool],
        attributes: dict[str, str],
        limit: int,
        after: ExecutionPlace | None,
        *,
        newest_first: bool,
    ) -> ExecutionPage:
        first = and_(event_store.c.execution_id == executions.c.id, event_store.c.version == 1)
        begun = (
            select(*_SUMMARY, cast(event_store.c.event_data, Text).label("data")).join(event_store, first).where(fits)
        )
        found: list[ExecutionSummary] = []
        left = LIST_LOOKED_AT_MAX
        while left > 0:
            query = _listed(begun, after, newest_first=newest_first).limit(LIST_PAGE_MAX)
            async with self._database.read(tenant) as connection:
                rows = (await connection.execute(query)).all()
            for row in rows:
                after = _place(row)
                event = decode(self._seal.opened_event(tenant, row.id, 1, row.data))
                if isinstance(event, ExecutionStarted) and attributes_fit(event.input, attributes):
                    found.append(_summary(row))
                    if len(found) == limit:
                        return ExecutionPage(tuple(found), after)
            if len(rows) < LIST_PAGE_MAX:
                return ExecutionPage(tuple(found), None)
            left -= len(rows)
        return ExecutionPage(tuple(found), after)

    async def count(self, tenant: TenantId, wanted: ExecutionFilter = _NOTHING) -> int:
        """How many, and never more than `LIST_COUNT_MAX`, which then means at least so many. Without attributes."""
        fits = _fits(tenant, wanted, await self._tagged(tenant, wanted.tag))
        some = select(executions.c.id).where(fits).limit(LIST_COUNT_MAX)
        query = select(func.count()).select_from(some.subquery())
        async with self._database.read(tenant) as connection:
            return await connection.scalar(query) or 0

    async def get(self, tenant: TenantId, execution: ExecutionId) -> ExecutionSummary | None:
        query = select(*_SUMMARY).where(executions.c.tenant_id == tenant, executions.c.id == execution)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _summary(row)

    async def with_trace(self, tenant: TenantId, trace: str, *, from_ms: int, until_ms: int) -> Sequence[ExecutionId]:
        """Those that started in that time and have this trace, in the order of their starts."""
        query = select(executions.c.id).where(
            executions.c.tenant_id == tenant,
            executions.c.started_at_ms.between(from_ms, until_ms),
            executions.c.trace_id == trace,
        )
        async with self._database.read(tenant) as connection:
            return [ExecutionId(found) for found in await connection.scalars(query.order_by(executions.c.id))]

    async def _tagged(self, tenant: TenantId, tag: str | None) -> Sequence[str]:
        """Workflows with a tag: as many as people wrote, which is not many. Executions are then found in order."""
        if tag is None:
            return ()
        query = select(workflows.c.id).where(workflows.c.tenant_id == tenant, tagged(self._database.engine, tag))
        async with self._database.read(tenant) as connection:
            return (await connection.scalars(query)).all()


def _listed(
    query: Select[*tuple[Any, ...]], after: ExecutionPlace | None, *, newest_first: bool
) -> Select[*tuple[Any, ...]]:
    columns: Sequence[ColumnElement[Any]] = (executions.c.started_at_ms, executions.c.id)
    if after is not None:
        place, behind = tuple_(*columns), tuple_(after.started_at_ms, after.id)
        query = query.where(place < behind if newest_first else place > behind)
    return query.order_by(*(column.desc() if newest_first else column for column in columns))


def _fits(tenant: TenantId, wanted: ExecutionFilter, tagged: Sequence[str]) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = [executions.c.tenant_id == tenant]
    if wanted.workflow is not None:
        name, at, version = wanted.workflow.partition("@")
        by_id = not at and name.startswith("wf_")
        conditions.append((executions.c.workflow_id if by_id else executions.c.workflow_name) == name)
        if at:
            conditions.append(executions.c.workflow_version == version)
    if len(wanted.statuses) == 1:
        conditions.append(executions.c.status == wanted.statuses[0])  # in the order of its index
    elif wanted.statuses:
        conditions.append(executions.c.status.in_(wanted.statuses))
    if wanted.started_from_ms is not None:
        conditions.append(executions.c.started_at_ms >= wanted.started_from_ms)
    if wanted.started_before_ms is not None:
        conditions.append(executions.c.started_at_ms < wanted.started_before_ms)
    if wanted.tag is not None:
        conditions.append(executions.c.workflow_id.in_(tagged))
    return and_(*conditions)


def _place(row: Row[*tuple[Any, ...]]) -> ExecutionPlace:
    return ExecutionPlace(row.started_at_ms, row.id)


def _summary(row: Row[*tuple[Any, ...]]) -> ExecutionSummary:
    return ExecutionSummary(
        id=row.id,
        workflow=ListedWorkflow(row.workflow_id, row.workflow_name, row.workflow_version),
        status=row.status,
        started_at_ms=row.started_at_ms,
        ended_at_ms=row.ended_at_ms,
        trace=row.trace_id,
    )
