"""The store as the live feed reads it; implements `control_plane.live.feed.LiveEvents`."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Text, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.execution.events import decode
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import LIVE_WINDOW
from control_plane.live.feed import LiveEvent, LivePage, Topic
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.stream import SqlEventStream
from control_plane.storage.tables import event_store, executions

_EVENTS = select(
    event_store.c.position,
    event_store.c.tenant_id,
    event_store.c.execution_id,
    event_store.c.version,
    cast(event_store.c.event_data, Text),
)


class SqlLiveEvents:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal
        self._stream = SqlEventStream(database, seal=seal)

    async def newest(self) -> int:
        return await self._stream.end()

    async def page(self, *, after: int, limit: int, topic: Topic | None = None) -> LivePage:
        end = await self._stream.end(after)
        if end <= after:
            return LivePage((), after)
        if topic is not None and topic.execution is None:
            # What it wants may be rare. The reader asks again from where this ended.
            end = min(end, after + LIVE_WINDOW)
        # Within an execution versions are in the order of positions, and there is an index for them.
        in_order = event_store.c.position if topic is None or topic.execution is None else event_store.c.version
        query = _EVENTS.where(event_store.c.position > after, event_store.c.position <= end)
        query = query.order_by(in_order).limit(limit)
        if topic is not None:
            query = query.where(event_store.c.tenant_id == topic.tenant)
            if topic.workflow is not None:
                query = query.where(_is_of(topic.workflow))
            if topic.execution is not None:
                query = query.where(event_store.c.execution_id == topic.execution)
        reading = self._database.system_read() if topic is None else self._database.read(topic.tenant)
        async with reading as connection:
            found = (await connection.execute(query)).all()
            # Asked for apart. In one question PostgreSQL may come to go through all executions there are to join them.
            workflows = await _workflows(connection, {execution for _, _, execution, _, _ in found})
        events = [
            LiveEvent(
                position,
                TenantId(tenant),
                workflows[execution],
                ExecutionId(execution),
                version,
                decode(self._seal.opened_event(tenant, execution, version, data)),
            )
            for position, tenant, execution, version, data in found
            if execution in workflows  # or it was removed between the questions
        ]
        return LivePage(events, found[-1].position if len(found) == limit else end)


def _is_of(workflow: str) -> ColumnElement[bool]:
    """One probe for each event: a subquery with a limit becomes no join."""
    named = select(executions.c.workflow_name).where(executions.c.id == event_store.c.execution_id).limit(1)
    return named.scalar_subquery() == workflow


async def _workflows(connection: AsyncConnection, wanted: Collection[str]) -> dict[str, str]:
    if not wanted:
        return {}
    query = select(executions.c.id, executions.c.workflow_name).where(executions.c.id.in_(wanted))
    return {row.id: row.workflow_name for row in await connection.execute(query)}
