"""How much each tenant stores, counted in the background, so that asking costs one row however much there is.

One control plane walks through every table a page at a time and rests after each, then keeps the sums. Nothing is
written with an append, and what a purge removed needs no taking off: the next walk does not find it. Many tables hold
little, so the beginnings of all are counted in one query, and only those that go on are walked through. A restart
begins a walk anew and forgets no sum that was kept.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import structlog
from sqlalchemy import Column, ColumnElement, Select, Table, and_, delete, func, literal, select, tuple_, union_all
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.clock import Clock
from agentflow.errors import AgentFlowError
from agentflow.limits import STORAGE_COUNT_EVERY_S, STORAGE_COUNT_PAGE, STORAGE_COUNT_REST
from agentflow.ports import ArtifactStore
from control_plane.storage.database import Database
from control_plane.storage.retention_days import read_on_one_core
from control_plane.storage.tables import event_store, metadata, storage_use
from control_plane.storage.usage import COUNTED, row_bytes

_log = structlog.get_logger(__name__)

_Key = tuple[object, ...]


class StorageCounts:
    def __init__(
        self, database: Database, artifacts: ArtifactStore, clock: Clock, *, page: int = STORAGE_COUNT_PAGE
    ) -> None:
        self._database = database
        self._artifacts = artifacts
        self._clock = clock
        self._page = page

    @asynccontextmanager
    async def counting(self, is_ours: Callable[[str], bool]) -> AsyncIterator[None]:
        """While the block runs, on whichever control plane it belongs to. A failure costs a later attempt."""

        async def on_and_on() -> None:
            while True:
                try:
                    if is_ours(__name__):
                        await self.count()
                except AgentFlowError as error:
                    _log.warning("storage.not_counted", reason=error.message)
                await self._clock.sleep(STORAGE_COUNT_EVERY_S)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(on_and_on(), name="storage counts")
            try:
                yield
            finally:
                task.cancel()

    async def count(self) -> None:
        """Once through everything. Without rests where nothing was ever counted: a sum that is not there is no sum."""
        known = await self._known()
        rest = STORAGE_COUNT_REST if known else 0
        found: Counter[str] = Counter()
        begun = perf_counter()
        for use in await self._artifacts.shelves():
            found[use.shelf.tenant] += use.bytes
        await self._rest_after(begun, rest)
        for table in await self._beginnings(found, rest):
            await self._walk(table, found, rest)
        if found != known:
            await self._keep(found)

    async def _known(self) -> Counter[str]:
        async with self._database.system_read() as connection:
            rows = await connection.execute(select(storage_use.c.tenant_id, storage_use.c.bytes))
            return Counter({row.tenant_id: row.bytes for row in rows})

    async def _beginnings(self, found: Counter[str], rest: int) -> list[Table]:
        """Count the first page of every table, all at once; those that go on are not counted, but named."""
        counted = {table: Counter[str]() for table in COUNTED}
        rows = Counter[str]()
        begun = perf_counter()
        async with read_on_one_core(self._database) as connection:
            pages = union_all(*(self._sums(table, _everything(table)) for table in COUNTED))
            for name, tenant, size, number in await connection.execute(pages):
                counted[metadata.tables[name]][tenant] += int(size)
                rows[name] += number
        await self._rest_after(begun, rest)
        for table in COUNTED:
            if rows[table.name] < self._page:
                found.update(counted[table])
        return [table for table in COUNTED if rows[table.name] == self._page]

    async def _walk(self, table: Table, found: Counter[str], rest: int) -> None:
        keys, after = _order(table), None
        goes_on = True
        while goes_on:
            begun = perf_counter()
            wanted = _everything(table) if after is None else _beyond(keys, after)
            last_of_page = select(*keys).where(wanted).order_by(*keys).offset(self._page - 1).limit(1)
            async with read_on_one_core(self._database) as connection:
                last = (await connection.execute(last_of_page)).one_or_none()
                within = wanted if last is None else and_(wanted, _up_to(keys, tuple(last)))
                for _, tenant, size, _ in await connection.execute(self._sums(table, within)):
                    found[tenant] += int(size)
            goes_on, after = last is not None, None if last is None else tuple(last)
            await self._rest_after(begun, rest)

    def _sums(self, table: Table, wanted: ColumnElement[bool]) -> Select[Any]:
        """By tenant: the bytes and the number of the first rows of those that are wanted."""
        of_page = select(table.c.tenant_id, row_bytes(table).label("size")).where(wanted)
        page = of_page.order_by(*_order(table)).limit(self._page).subquery()
        summed = select(literal(table.name), page.c.tenant_id, func.sum(page.c.size), func.count())
        return summed.group_by(page.c.tenant_id)

    async def _keep(self, found: Counter[str]) -> None:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        keep = insert(storage_use)
        keep = keep.on_conflict_do_update(index_elements=["tenant_id"], set_={"bytes": keep.excluded.bytes})
        async with self._database.system_write() as connection:
            await connection.execute(delete(storage_use).where(storage_use.c.tenant_id.not_in(list(found))))
            if found:
                rows = [{"tenant_id": tenant, "bytes": size} for tenant, size in sorted(found.items())]
                await connection.execute(keep, rows)

    async def _rest_after(self, begun_s: float, times: int) -> None:
        await self._clock.sleep((perf_counter() - begun_s) * times)


def _order(table: Table) -> list[Column[object]]:
    """By what no two rows share, and under PostgreSQL by what divides the table first: an index gives it."""
    if table is event_store:
        return [table.c.execution_id, table.c.version]
    return list(table.primary_key.columns)


def _everything(table: Table) -> ColumnElement[bool]:
    return table.c.tenant_id.is_not(None)


def _beyond(keys: list[Column[object]], after: _Key) -> ColumnElement[bool]:
    """The first column alone tells PostgreSQL which days it need not look into."""
    return and_(keys[0] >= after[0], tuple_(*keys) > after)


def _up_to(keys: list[Column[object]], last: _Key) -> ColumnElement[bool]:
    return and_(keys[0] <= last[0], tuple_(*keys) <= last)
