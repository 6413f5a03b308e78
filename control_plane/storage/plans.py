"""Plans of executions, brought up to date when somebody looks: no commit pays for a view that nobody opens.

A row of `plans` says how far an execution's events have been read into `plan_steps`. Whoever looks reads on from there,
so a look costs what happened since the last one. `af db rebuild` makes the same rows from nothing.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Text, cast, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.execution.events import Event, decode
from agentflow.ids import ExecutionId, StepPath, TenantId
from agentflow.limits import EVENTS_PAGE_MAX
from control_plane.registry.plans import PlanStep, advance, step_of
from control_plane.storage.database import Database, EngineName
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import event_store, plan_steps, plans

_FIELDS = PlanStep.__struct_fields__
_STEP = [plan_steps.c[field] for field in _FIELDS]


class SqlPlans:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal

    async def steps(
        self, tenant: TenantId, execution: ExecutionId, *, after_number: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        """In the order in which they were first asked for."""
        await self._bring_up_to_date(tenant, execution)
        query = (
            select(*_STEP)
            .where(
                plan_steps.c.tenant_id == tenant,
                plan_steps.c.execution_id == execution,
                plan_steps.c.number > after_number,
            )
            .order_by(plan_steps.c.number)
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            return [PlanStep(*row) for row in await connection.execute(query)]

    async def _bring_up_to_date(self, tenant: TenantId, execution: ExecutionId) -> None:
        newest = select(func.max(event_store.c.version)).where(
            event_store.c.tenant_id == tenant, event_store.c.execution_id == execution
        )
        read = select(plans.c.version).where(plans.c.tenant_id == tenant, plans.c.execution_id == execution)
        async with self._database.read(tenant) as connection:
            reached, behind = await connection.scalar(newest), await connection.scalar(read)
        while reached is not None and (behind or 0) < reached:
            behind = await self._read_on(tenant, execution)

    async def _read_on(self, tenant: TenantId, execution: ExecutionId) -> int:
        """One page of events further. Of several who look at once, one reads and the others wait."""
        async with self._database.system_write() as connection:
            row = {"execution_id": execution, "tenant_id": tenant, "version": 0}
            await connection.execute(_insert(self._database.engine, plans).on_conflict_do_nothing(), row)
            mine = plans.c.execution_id == execution
            version = await connection.scalar(select(plans.c.version).where(mine).with_for_update()) or 0
            page = (
                select(event_store.c.version, cast(event_store.c.event_data, Text))
                .where(event_store.c.execution_id == execution, event_store.c.version > version)
                .order_by(event_store.c.version)
                .limit(EVENTS_PAGE_MAX)
            )
            events = [
                (number, decode(self._seal.opened_event(tenant, execution, number, data)))
                for number, data in await connection.execute(page)
            ]
            if events:
                version = events[-1][0]
                await project(connection, self._database.engine, tenant, execution, events)
                await connection.execute(plans.update().where(mine).values(version=version))
        return version


async def project(
    connection: AsyncConnection,
    engine: EngineName,
    tenant: TenantId,
    execution: ExecutionId,
    events: Sequence[tuple[int, Event]],
) -> None:
    """Read events into the steps of their execution, on top of what is there."""
    paths = {path for _, event in events if (path := step_of(event)) is not None}
    if not paths:
        return
    known = select(*_STEP).where(plan_steps.c.execution_id == execution, plan_steps.c.path.in_(paths))
    before = {StepPath(row.path): PlanStep(*row) for row in await connection.execute(known)}
    rows = [
        {"execution_id": execution, "tenant_id": tenant, **{field: getattr(step, field) for field in _FIELDS}}
        for step in advance(before, events).values()
    ]
    if rows:
        statement = _insert(engine, plan_steps)
        changed = {field: statement.excluded[field] for field in _FIELDS if field not in ("path", "number")}
        await connection.execute(
            statement.on_conflict_do_update(index_elements=["execution_id", "path"], set_=changed), rows
        )


def _insert(engine: EngineName, table: Any) -> Any:
    return (postgresql.insert if engine == "postgresql" else sqlite.insert)(table)
