"""Every event of every execution in one order; implements `agentflow.ports.EventStream`.

Positions are drawn in order, and under PostgreSQL become visible in another: a reader that took the highest one it sees
for the end would pass over those still being committed. But whoever draws a position holds the row of its shard's lease
until its transaction ends (`control_plane.storage.append`). So the highest position drawn so far is a safe end once
each lease has been seen free after reading it: everything at or below is visible or will never be. That needs nothing
of transaction ids, so it survives dump and restore, and long transactions of others do not hold it up. SQLite has one
writer, and so one order.
"""

from sqlalchemy import Text, cast, func, select, text

from agentflow.execution.events import decode
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import StreamedEvent, StreamPage
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import event_store, shard_leases

_DRAWN = text("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM event_store_position_seq")
_LEASES = select(shard_leases.c.shard).order_by(shard_leases.c.shard)


class SqlEventStream:
    def __init__(self, database: Database, *, seal: FieldSeal = PLAIN) -> None:
        self._database = database
        self._seal = seal
        self._safe = 0  # up to here it is known that nothing can appear any more

    async def page(self, *, after: int = 0, limit: int) -> StreamPage:
        end = await self.end(after)
        if end <= after:
            return StreamPage((), after)
        query = (
            select(
                event_store.c.position,
                event_store.c.tenant_id,
                event_store.c.execution_id,
                event_store.c.version,
                cast(event_store.c.event_data, Text),
            )
            .where(event_store.c.position > after, event_store.c.position <= end)
            .order_by(event_store.c.position)
            .limit(limit)
        )
        async with self._database.system_read() as connection:
            events = tuple(
                StreamedEvent(
                    position,
                    TenantId(tenant),
                    ExecutionId(execution),
                    version,
                    decode(self._seal.opened_event(tenant, execution, version, data)),
                )
                for position, tenant, execution, version, data in await connection.execute(query)
            )
        # A page that is not full reached the end: what is missing before it was never committed.
        return StreamPage(events, events[-1].position if len(events) == limit else end)

    async def end(self, after: int = 2**63) -> int:
        """Nothing at or below it can appear any more. A reader far behind may be told a lower one than there is."""
        if self._database.engine == "sqlite":
            async with self._database.system_read() as connection:
                return await connection.scalar(select(func.max(event_store.c.position))) or 0
        if after < self._safe:
            return self._safe  # a reader far behind asks no lease for anything
        async with self._database.system_read() as connection:
            drawn: int = await connection.scalar(_DRAWN)
        if drawn > self._safe:
            await self._see_every_lease_free()
            self._safe = drawn
        return self._safe

    async def _see_every_lease_free(self) -> None:
        """First those that are, all at once; then each of the others as soon as its append has ended."""
        async with self._database.system_write() as connection:
            every = set(await connection.scalars(_LEASES))
            free = set(await connection.scalars(_LEASES.with_for_update(read=True, skip_locked=True)))
        for shard in sorted(every - free):
            async with self._database.system_write() as connection:
                await connection.execute(_LEASES.where(shard_leases.c.shard == shard).with_for_update(read=True))
