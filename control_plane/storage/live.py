"""The store as the live feed reads it; implements `control_plane.live.feed.LiveEvents`."""

from sqlalchemy import Text, cast, select

from agentflow.execution.events import decode
from agentflow.ids import ExecutionId, TenantId
from control_plane.live.feed import LiveEvent, LivePage, Topic
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.stream import SqlEventStream
from control_plane.storage.tables import event_store, executions

_EVENTS = select(
    event_store.c.position,
    event_store.c.tenant_id,
    executions.c.workflow_name,
    event_store.c.execution_id,
    event_store.c.version,
    cast(event_store.c.event_data, Text),
).join(executions, executions.c.id == event_store.c.execution_id)


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
        # Within an execution versions are in the order of positions, and there is an index for them.
        in_order = event_store.c.position if topic is None or topic.execution is None else event_store.c.version
        query = _EVENTS.where(event_store.c.position > after, event_store.c.position <= end)
        query = query.order_by(in_order).limit(limit)
        if topic is not None:
            query = query.where(event_store.c.tenant_id == topic.tenant)
            if topic.workflow is not None:
                query = query.where(executions.c.workflow_name == topic.workflow)
            if topic.execution is not None:
                query = query.where(event_store.c.execution_id == topic.execution)
        reading = self._database.system_read() if topic is None else self._database.read(topic.tenant)
        async with reading as connection:
            events = [
                LiveEvent(
                    position,
                    TenantId(tenant),
                    workflow,
                    ExecutionId(execution),
                    version,
                    decode(self._seal.opened_event(tenant, execution, version, data)),
                )
                for position, tenant, workflow, execution, version, data in await connection.execute(query)
            ]
        return LivePage(events, events[-1].seq if len(events) == limit else end)
