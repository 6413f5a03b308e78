"""The event store: what happened to every execution, only ever added to.

Implements `agentflow.ports.EventStore` for SQLite and PostgreSQL. It keeps what it is given and refuses what does not
follow; what should happen next is decided in `agentflow.execution`.
"""

import sqlite3
from collections.abc import Sequence
from functools import reduce

import asyncpg
from sqlalchemy import Text, cast, func, select

from agentflow.execution.events import decode
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import NewEvents, StoredEvent, VersionConflict
from control_plane.storage.append import Rows, rows_of, write_postgres, write_sqlite
from control_plane.storage.database import Database
from control_plane.storage.tables import event_store, executions

_DATA = cast(event_store.c.event_data, Text)  # decoded once, into events


class SqlEventStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._write = write_postgres if database.engine == "postgresql" else write_sqlite

    async def append(self, batch: Sequence[NewEvents]) -> None:
        rows = rows_of(batch)
        if rows.events and not await self._written(rows):
            raise await self._conflict(batch)

    async def _written(self, rows: Rows) -> bool:
        """False where the batch does not follow what is stored; then nothing of it is."""
        async with self._database.driver() as driver:
            try:
                return await self._write(driver, rows) == len(rows.events)
            except (sqlite3.IntegrityError, asyncpg.UniqueViolationError):
                return False

    async def _conflict(self, batch: Sequence[NewEvents]) -> VersionConflict:
        """Find out which execution was refused. Only a lost race pays for this query."""
        first: dict[ExecutionId, NewEvents] = {}
        for new in batch:
            first.setdefault(new.execution, new)
        newest = (
            select(event_store.c.execution_id, func.max(event_store.c.version).label("version"))
            .where(event_store.c.execution_id.in_(first))
            .group_by(event_store.c.execution_id)
        )
        async with self._database.system_read() as connection:
            stored = {row.execution_id: row.version for row in await connection.execute(newest)}
        refused = [new for new in first.values() if stored.get(new.execution, 0) != new.after_version]
        new = (refused or batch)[0]
        return VersionConflict(new.execution, new.after_version)

    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]:
        query = (
            select(event_store.c.version, _DATA)
            .where(
                event_store.c.tenant_id == tenant,
                event_store.c.execution_id == execution,
                event_store.c.version > after_version,
            )
            .order_by(event_store.c.version)
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            return [StoredEvent(execution, version, decode(data)) for version, data in await connection.execute(query)]

    async def load(self, execution: ExecutionId) -> ExecutionState | None:
        query = select(_DATA).where(event_store.c.execution_id == execution).order_by(event_store.c.version)
        async with self._database.system_read() as connection:
            stored = (await connection.scalars(query)).all()
        return reduce(evolve, map(decode, stored), ExecutionState()) if stored else None

    async def open_executions(self, shards: Sequence[int]) -> Sequence[ExecutionId]:
        query = (
            select(executions.c.id)
            .where(executions.c.ended_at_ms.is_(None), executions.c.shard.in_(shards))
            .order_by(executions.c.id)
        )
        async with self._database.system_read() as connection:
            return [ExecutionId(execution) for execution in await connection.scalars(query)]
