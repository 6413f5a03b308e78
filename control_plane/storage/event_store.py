"""The event store: what happened to every execution, only ever added to.

Implements `agentflow.ports.EventStore` for SQLite and PostgreSQL. It keeps what it is given and refuses what does not
follow; what should happen next is decided in `agentflow.execution`.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

import asyncpg
from sqlalchemy import Row, Select, Text, cast, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.execution.events import Event, decode
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import RECOVER_AT_ONCE, STATE_SNAPSHOT_EVENTS
from agentflow.ports import NewEvents, ShardLost, StorageUnavailable, StoredEvent, VersionConflict
from control_plane.storage.append import Rows, rows_of, write_postgres, write_sqlite
from control_plane.storage.database import Database
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.state_snapshots import FORMAT, unpacked
from control_plane.storage.tables import event_store, execution_snapshots, executions, shard_leases
from control_plane.storage.written import Written

_DATA = cast(event_store.c.event_data, Text)  # decoded once, into events


class SqlEventStore:
    def __init__(
        self, database: Database, *, snapshot_every: int = STATE_SNAPSHOT_EVENTS, seal: FieldSeal = PLAIN
    ) -> None:
        self._database = database
        self._seal = seal
        self._snapshot_every = snapshot_every

    async def append(self, batch: Sequence[NewEvents], epochs: Mapping[int, int]) -> None:
        """Whoever finds another batch being written makes its rows meanwhile, for the same connection."""
        ready = self._rows(batch, epochs, self._database.written) if self._database.appending else None

        def rows(known: Written) -> Rows:
            return ready if ready is not None and ready.known is known else self._rows(batch, epochs, known)

        if any(new.events for new in batch) and not await self._written(rows):
            raise await self._refusal(batch, epochs)
        for new in batch:
            for entry in new.audits:
                entry.written = True

    def _rows(self, batch: Sequence[NewEvents], epochs: Mapping[int, int], known: Written) -> Rows:
        return rows_of(batch, epochs, snapshot_every=self._snapshot_every, seal=self._seal, known=known)

    async def _written(self, rows: Callable[[Written], Rows]) -> bool:
        """False where the batch does not follow what is stored; then nothing of it is."""
        try:
            return await self._database.append(
                postgresql=lambda driver, known: write_postgres(driver, rows(known)),
                sqlite=lambda connection, known: write_sqlite(connection, rows(known)),
            )
        except StorageUnavailable as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError | asyncpg.UniqueViolationError):
                return False
            raise

    async def _refusal(self, batch: Sequence[NewEvents], epochs: Mapping[int, int]) -> ShardLost | VersionConflict:
        """Find out what was refused, and why. Only a lost race pays for these queries."""
        first: dict[ExecutionId, NewEvents] = {}
        for new in batch:
            first.setdefault(new.execution, new)
        newest = (
            select(event_store.c.execution_id, func.max(event_store.c.version).label("version"))
            .where(event_store.c.execution_id.in_(first))
            .group_by(event_store.c.execution_id)
        )
        needed = {new.shard: epochs[new.shard] for new in batch}
        leases = select(shard_leases.c.shard, shard_leases.c.epoch).where(shard_leases.c.shard.in_(needed))
        async with self._database.system_read() as connection:
            current = {row.shard: row.epoch for row in await connection.execute(leases)}
            lost = [shard for shard, epoch in sorted(needed.items()) if current.get(shard) != epoch]
            if lost:
                return ShardLost(lost)
            stored = {row.execution_id: row.version for row in await connection.execute(newest)}
        refused = [new for new in first.values() if stored.get(new.execution, 0) != new.after_version]
        new = (refused or batch)[0]
        return VersionConflict(new.execution, new.after_version)

    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]:
        rows = await self._stored(tenant, execution, after_version, limit)
        return [
            StoredEvent(execution, version, self._decoded(tenant, execution, version, data)) for version, data in rows
        ]

    async def recorded(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int, limit: int
    ) -> Sequence[bytes]:
        """Events as they were written, byte for byte."""
        rows = await self._stored(tenant, execution, after_version, limit)
        opened = (self._seal.opened_event(tenant, execution, version, data) for version, data in rows)
        return [event.encode() if isinstance(event, str) else event for event in opened]

    async def _stored(
        self, tenant: TenantId, execution: ExecutionId, after_version: int, limit: int | None
    ) -> Sequence[Row[int, str]]:
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
            return (await connection.execute(query)).all()

    def _decoded(self, tenant: str, execution: str, version: int, stored: str) -> Event:
        return decode(self._seal.opened_event(tenant, execution, version, stored))

    async def load(self, execution: ExecutionId, *, tenant: TenantId | None = None) -> ExecutionState | None:
        states = await self._folded([execution], tenant)
        return states[0] if states else None

    async def load_all(self, executions: Sequence[ExecutionId]) -> Sequence[ExecutionState]:
        return await self._folded(executions, None)

    async def _folded(self, executions: Sequence[ExecutionId], tenant: TenantId | None) -> Sequence[ExecutionState]:
        """Each from its snapshot and what came after; of one tenant only, where it is named."""
        if not executions:
            return []
        snapshots, events = _SNAPSHOTS, _EVENTS
        if tenant is not None:
            snapshots = snapshots.where(execution_snapshots.c.tenant_id == tenant)
            events = events.where(event_store.c.tenant_id == tenant)
        async with self._database.system_read() as connection:
            stored = await connection.execute(snapshots.where(execution_snapshots.c.execution_id.in_(executions)))
            begun = {ExecutionId(row.execution_id): self._unpacked(row) for row in stored}
            tails = await self._tails(connection, events, [one for one in executions if one not in begun])
            for execution, state in begun.items():
                tails |= await self._tails(connection, events, [execution], after_version=state.version)
        states = []
        for execution in executions:
            state = begun.get(execution, ExecutionState())
            tail = tails.get(execution, [])
            if tail or state.version:
                states.append(reduce(evolve, tail, state))
        return states

    def _unpacked(self, row: Row[*tuple[Any, ...]]) -> ExecutionState:
        return unpacked(self._seal.opened_state(row.tenant_id, row.execution_id, row.version, row.state))

    async def _tails(
        self,
        connection: AsyncConnection,
        events: Select[*tuple[Any, ...]],
        wanted: Sequence[ExecutionId],
        *,
        after_version: int = 0,
    ) -> dict[ExecutionId, list[Event]]:
        """The events of each after a version, which is part of the question: what came before is not read."""
        if not wanted:
            return {}
        query = events.where(event_store.c.execution_id.in_(wanted), event_store.c.version > after_version)
        found = await connection.execute(query)
        return {
            ExecutionId(execution): [self._decoded(row[3], row[0], row[1], row[2]) for row in rows]
            for execution, rows in groupby(found, key=itemgetter(0))
        }

    async def open_executions(self, shards: Sequence[int]) -> AsyncIterator[Sequence[ExecutionId]]:
        """A page at a time, in the order of the index that holds nothing but what is open."""
        place = tuple_(executions.c.shard, executions.c.id)
        query = (
            select(executions.c.shard, executions.c.id)
            .where(executions.c.ended_at_ms.is_(None), executions.c.shard.in_(shards))
            .order_by(executions.c.shard, executions.c.id)
            .limit(RECOVER_AT_ONCE)
        )
        page = query if shards else None
        while page is not None:
            async with self._database.system_read() as connection:
                found = (await connection.execute(page)).all()
            if found:
                yield [ExecutionId(execution) for _, execution in found]
            page = query.where(place > tuple(found[-1])) if len(found) == RECOVER_AT_ONCE else None


_SNAPSHOTS = select(execution_snapshots).where(execution_snapshots.c.format == FORMAT)
_EVENTS = select(event_store.c.execution_id, event_store.c.version, _DATA, event_store.c.tenant_id).order_by(
    event_store.c.execution_id, event_store.c.version
)
