"""Which executions have ended, in the order of all events; implements `control_plane.snapshots.ended.Endings`."""

from collections.abc import Sequence

from sqlalchemy import and_, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from agentflow.execution.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionTerminated,
    tag_of,
)
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import SNAPSHOT_ENDED_WINDOW
from control_plane.snapshots.ended import Ended, EndedPage
from control_plane.storage.database import Database
from control_plane.storage.stream import SqlEventStream
from control_plane.storage.tables import deployment, event_store, snapshots

_PLACE = "snapshots.position"
_ENDS = tuple(tag_of(kind) for kind in (ExecutionCompleted, ExecutionFailed, ExecutionCancelled, ExecutionTerminated))
_events = event_store.c


class SqlEndings:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._stream = SqlEventStream(database)

    async def page(self, *, after: int) -> EndedPage:
        until = min(await self._stream.end(after), after + SNAPSHOT_ENDED_WINDOW)
        if until <= after:
            return EndedPage((), after)
        query = (
            select(_events.tenant_id, _events.execution_id, _events.version)
            .where(_events.position > after, _events.position <= until, _events.event_type.in_(_ENDS))
            .order_by(_events.position)
        )
        async with self._database.system_read() as connection:
            return EndedPage(tuple(Ended(*row) for row in await connection.execute(query)), until)

    async def untaken(self, tenant: TenantId, executions: Sequence[ExecutionId]) -> Sequence[Ended]:
        newest = (
            select(_events.execution_id, func.max(_events.version).label("version"))
            .where(_events.tenant_id == tenant, _events.execution_id.in_(executions))
            .group_by(_events.execution_id)
            .subquery()
        )
        taken = and_(snapshots.c.execution_id == newest.c.execution_id, snapshots.c.version == newest.c.version)
        query = select(newest).where(~select(snapshots.c.id).where(taken).exists()).order_by(newest.c.execution_id)
        async with self._database.system_read() as connection:
            return [Ended(tenant, row.execution_id, row.version) for row in await connection.execute(query)]

    async def place(self) -> int:
        query = select(deployment.c.value).where(deployment.c.name == _PLACE)
        async with self._database.system_read() as connection:
            found = await connection.scalar(query)
        if found is not None:
            return int(found)
        end = await self._stream.end()
        try:
            async with self._database.system_write() as connection:
                await connection.execute(insert(deployment).values(name=_PLACE, value=str(end)))
        except IntegrityError:
            return await self.place()  # another was first
        return end

    async def move(self, place: int, to: int) -> bool:
        mine = update(deployment).where(deployment.c.name == _PLACE, deployment.c.value == str(place))
        async with self._database.system_write() as connection:
            return (await connection.execute(mine.values(value=str(to)))).rowcount == 1
