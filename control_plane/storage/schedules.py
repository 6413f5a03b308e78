"""Schedules as rows; implements `control_plane.schedules.schedule.ScheduleStore`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.errors import Bug
from agentflow.ids import ExecutionId, TenantId
from control_plane.schedules.schedule import Progress, Schedule
from control_plane.schedules.times import Spec
from control_plane.storage.database import Database
from control_plane.storage.tables import executions, schedules


class SqlSchedules:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, schedule: Schedule) -> Schedule:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_taken = insert(schedules).on_conflict_do_nothing(index_elements=["tenant_id", "name"])
        async with self._database.write(schedule.tenant) as connection:
            await connection.execute(unless_taken, _values(schedule))
        stored = await self.named(schedule.tenant, schedule.name)
        if stored is None:
            raise Bug(f"The schedule {schedule.name} was stored but cannot be read back.")
        return stored

    async def named(self, tenant: TenantId, name: str) -> Schedule | None:
        query = select(schedules).where(schedules.c.tenant_id == tenant, schedules.c.name == name)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _schedule(row)

    async def list(self, tenant: TenantId, *, limit: int) -> Sequence[Schedule]:
        query = select(schedules).where(schedules.c.tenant_id == tenant).order_by(schedules.c.name).limit(limit)
        async with self._database.read(tenant) as connection:
            return [_schedule(row) for row in await connection.execute(query)]

    async def replace(self, schedule: Schedule) -> bool:
        change = update(schedules).where(
            schedules.c.tenant_id == schedule.tenant,
            schedules.c.id == schedule.id,
            schedules.c.revision == schedule.revision - 1,
        )
        async with self._database.write(schedule.tenant) as connection:
            return (await connection.execute(change.values(_values(schedule)))).rowcount == 1

    async def remove(self, tenant: TenantId, id: str) -> bool:
        gone = delete(schedules).where(schedules.c.tenant_id == tenant, schedules.c.id == id)
        async with self._database.write(tenant) as connection:
            return (await connection.execute(gone)).rowcount == 1

    async def active(self) -> Sequence[Schedule]:
        # Moments that wait belong to a schedule that is not paused; and one that is over has none to come.
        query = select(schedules).where(schedules.c.paused_at_ms.is_(None))
        async with self._database.system_read() as connection:
            found = [_schedule(row) for row in await connection.execute(query)]
        return [one for one in found if one.next_at_ms is not None or one.progress.waiting]

    async def statuses(self, wanted: Sequence[ExecutionId]) -> Mapping[ExecutionId, str]:
        query = select(executions.c.id, executions.c.status).where(executions.c.id.in_(wanted))
        async with self._database.system_read() as connection:
            return {ExecutionId(row.id): row.status for row in await connection.execute(query)}


def _values(schedule: Schedule) -> dict[str, Any]:
    return {
        "tenant_id": schedule.tenant,
        "id": schedule.id,
        "name": schedule.name,
        "workflow": schedule.workflow,
        "spec": msgspec.to_builtins(schedule.spec),
        "input": schedule.input,
        "next_at_ms": schedule.next_at_ms,
        "last_at_ms": schedule.last_at_ms,
        "created_at_ms": schedule.created_at_ms,
        "paused_at_ms": schedule.paused_at_ms,
        "progress": msgspec.to_builtins(schedule.progress),
        "revision": schedule.revision,
    }


def _schedule(row: Row[*tuple[Any, ...]]) -> Schedule:
    return Schedule(
        tenant=row.tenant_id,
        id=row.id,
        name=row.name,
        workflow=row.workflow,
        input=row.input,
        spec=msgspec.convert(row.spec, Spec),
        created_at_ms=row.created_at_ms,
        next_at_ms=row.next_at_ms,
        last_at_ms=row.last_at_ms,
        paused_at_ms=row.paused_at_ms,
        progress=Progress() if row.progress is None else msgspec.convert(row.progress, Progress),
        revision=row.revision,
    )
