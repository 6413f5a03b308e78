"""Removes what its retention has ended for, and says beforehand exactly what that is.

`plan` and `run` are the same computation: a run makes the plan, then removes it. Executions go whole: their
events, stored states, plans, remembered requests and artifacts; a snapshot goes later, by its own age, with the
artifacts on its own shelf. Under PostgreSQL a day of which most is over is dropped as a part (`retention_days`), which
frees its disk at once; everything else, and everything under SQLite, is deleted some rows at a time.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter

import msgspec
import structlog
from sqlalchemy import ColumnElement, Table, and_, delete, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.contracts.step import TOOLS_AGENT
from agentflow.contracts.workspace import execution_of
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import PURGE_BATCH, PURGE_READ_REST, PURGE_REST, PURGE_REST_S_MAX, RETENTION_ORPHAN_S
from agentflow.ports import ArtifactStore, Shelf
from control_plane.storage.budgets import SqlBudgets
from control_plane.storage.database import Database
from control_plane.storage.days import Part, bounds
from control_plane.storage.exports import Exports
from control_plane.storage.retention_days import drop_days, read_on_one_core, refresh_statistics
from control_plane.storage.retention_rules import Rules
from control_plane.storage.tables import (
    agent_states,
    audits,
    cost_observations,
    executions,
    idempotency_keys,
    jobs,
    metadata,
    snapshots,
)
from control_plane.storage.tables.types import Retention

_log = structlog.get_logger(__name__)

# What must be done before executions go: nothing, or a snapshot of each.
BeforeHistory = Callable[[TenantId, Sequence[ExecutionId]], Awaitable[None]]

_BATCH = 200  # executions in one file of an export; rows in one transaction
_AT_ONCE = 2_000  # ids read before others have a turn: some milliseconds on the server, under one in this loop
_VACUUM_PAGES = 2_000  # given back in one go: some milliseconds

# Tables whose rows end by their own age: the moment it is counted from.
_BY_AGE = {
    Retention.AUDIT: (audits, audits.c.at_ms),
    Retention.COST: (cost_observations, cost_observations.c.at_ms),
    Retention.SNAPSHOT: (snapshots, snapshots.c.created_at_ms),
    Retention.JOB: (jobs, jobs.c.created_at_ms),
    Retention.AGENT_STATE: (agent_states, agent_states.c.created_at_ms),
}

# What may own a shelf of artifacts: a shelf goes with its owner, and one whose owner is nowhere is an orphan.
_OWNERS = {Retention.HISTORY: executions, Retention.SNAPSHOT: snapshots}


class Removal(msgspec.Struct, frozen=True, order=True):
    """What goes of one kind of one tenant. `items` are executions, or rows where nothing belongs together."""

    tenant: str
    kind: str
    older_than_ms: int
    items: int
    ids: tuple[str, ...] = ()  # of what may have artifacts: executions, snapshots


class Plan(msgspec.Struct, frozen=True):
    at_ms: int
    removals: tuple[Removal, ...]
    orphans: tuple[str, ...] = ()  # artifacts that belong to nothing any more, as tenant/owner


async def _nothing(_: TenantId, __: Sequence[ExecutionId]) -> None:
    pass


class RetentionJob:
    def __init__(
        self,
        database: Database,
        artifacts: ArtifactStore,
        rules: Rules,
        exports: Exports,
        before_history: BeforeHistory = _nothing,
    ) -> None:
        self._before_history = before_history
        self._database = database
        self._artifacts = artifacts
        self._rules = rules
        self._exports = exports

    async def plan(self, now_ms: int) -> Plan:
        """Exactly what a run at that moment removes."""
        return await self._plan(now_ms, await self._counting(now_ms))

    async def _plan(self, now_ms: int, rules: Rules) -> Plan:
        tenants = await self._tenants()
        removals = [removal for tenant in tenants for removal in await self._removals(tenant, now_ms, rules)]
        return Plan(now_ms, tuple(sorted(removals)), await self._orphans(now_ms))

    async def run(self, now_ms: int) -> Plan:
        rules = await self._counting(now_ms)  # once: a budget that goes meanwhile takes nothing along unannounced
        plan = await self._plan(now_ms, rules)
        for removal in plan.removals:
            await self._export(removal, plan.at_ms)
            for some in _batches(removal.ids) if removal.kind == Retention.HISTORY else ():
                await self._before_history(TenantId(removal.tenant), [ExecutionId(one) for one in some])
        emptied = await drop_days(self._database, rules, plan.at_ms)
        for removal in plan.removals:
            if removal.kind == Retention.HISTORY:
                await self._delete_history(removal, _outside(removal.ids, emptied))
            else:
                await self._delete_rows(removal)
            await self._drop_shelves(removal)
        for orphan in plan.orphans:
            tenant, _, owner = orphan.partition("/")
            await self._artifacts.drop(Shelf(tenant, owner))
        await self._give_back_disk()
        await refresh_statistics(self._database)
        _log.info("retention.ran", removals=len(plan.removals), items=sum(removal.items for removal in plan.removals))
        return plan

    async def _counting(self, now_ms: int) -> Rules:
        """The rules, and what budgets still count: with that gone, they would have something left again."""
        began: dict[str, int] = {}
        for budget in await SqlBudgets(self._database).all():
            began[budget.tenant] = min(budget.began_ms(now_ms), began.get(budget.tenant, now_ms))
        return msgspec.structs.replace(self._rules, counted_from_ms=began)

    async def _tenants(self) -> Sequence[str]:
        found: set[str] = set()
        async with read_on_one_core(self._database) as connection:
            for table in (executions, *(table for table, _ in _BY_AGE.values())):
                found |= set(await connection.scalars(select(table.c.tenant_id).distinct()))
        return sorted(found)

    async def _removals(self, tenant: str, now_ms: int, rules: Rules) -> list[Removal]:
        removals = []
        cutoff = rules.cutoff_ms(tenant, Retention.HISTORY, now_ms)
        if cutoff is not None:
            ids = await self._ids(executions, _over(tenant, cutoff))
            if ids:
                removals.append(Removal(tenant, Retention.HISTORY, cutoff, len(ids), ids))
        for kind, (table, _) in _BY_AGE.items():
            cutoff = rules.cutoff_ms(tenant, kind, now_ms)
            if cutoff is None:
                continue
            aged = _aged(kind, tenant, cutoff)
            async with read_on_one_core(self._database) as connection:
                rows = await connection.scalar(select(func.count()).select_from(table).where(aged))
            if rows:
                taken = kind is Retention.SNAPSHOT  # the one kind besides executions that has artifacts
                ids = await self._ids(snapshots, aged) if taken else ()
                removals.append(Removal(tenant, kind, cutoff, len(ids) or rows, ids))
        return removals

    async def _ids(self, table: Table, wanted: ColumnElement[bool]) -> tuple[str, ...]:
        """The ids of what is over, in order. There may be very many, so they come as texts and not as rows."""
        found: list[str] = []
        while True:
            begun = perf_counter()
            some = select(table.c.id).where(wanted, table.c.id > (found[-1] if found else ""))
            page = some.order_by(table.c.id).limit(_AT_ONCE).subquery()
            async with self._database.system_read() as connection:
                text_of_them = await connection.scalar(select(func.aggregate_strings(page.c.id, ",")))
            if not text_of_them:
                return tuple(found)
            found += sorted(text_of_them.split(","))
            await _rest_after(begun, PURGE_READ_REST)

    async def _orphans(self, now_ms: int) -> tuple[str, ...]:
        """Artifacts whose owner was never committed: put by a process that was killed in between."""
        settled = [
            use.shelf for use in await self._artifacts.shelves() if use.newest_ms < now_ms - RETENTION_ORPHAN_S * 1000
        ]
        known: set[str] = set()
        async with self._database.system_read() as connection:
            for some in _batches(sorted({execution_of(shelf.owner) for shelf in settled})):
                for table in _OWNERS.values():
                    known |= set(await connection.scalars(select(table.c.id).where(table.c.id.in_(some))))
        return tuple(f"{shelf.tenant}/{shelf.owner}" for shelf in settled if execution_of(shelf.owner) not in known)

    async def _export(self, removal: Removal, at_ms: int) -> None:
        """All of it, before the first row goes."""
        if not self._exports.wanted:
            return
        named = f"{removal.tenant}/{_stamp(at_ms)}"
        if removal.kind != Retention.HISTORY:
            await self._export_rows(removal, named)
            return
        for number, ids in enumerate(_batches(removal.ids)):
            for table in _history_tables():
                key = table.c[table.info["day_key"]]
                async with self._database.system_read() as connection:
                    rows = (await connection.execute(select(table).where(key.in_(ids)))).mappings().all()
                await self._exports.write(f"{named}-{number:06}-{table.name}", table.name, rows)

    async def _export_rows(self, removal: Removal, named: str) -> None:
        table, _ = _BY_AGE[Retention(removal.kind)]
        keys = list(table.primary_key.columns)
        query = select(table).where(_aged(Retention(removal.kind), removal.tenant, removal.older_than_ms))
        query = query.order_by(*keys).limit(_BATCH)
        page, number = query, 0
        while True:
            async with self._database.system_read() as connection:
                rows = (await connection.execute(page)).mappings().all()
            if not rows:
                return
            await self._exports.write(f"{named}-{number:06}-{table.name}", table.name, rows)
            page = query.where(tuple_(*keys) > tuple(rows[-1][key.name] for key in keys))
            number += 1

    async def _delete_history(self, removal: Removal, left: Sequence[str]) -> None:
        """What no dropped day took along, and what belongs to all of it elsewhere."""
        others = [table for table in _history_tables() if table is not executions]
        over = _over(removal.tenant, removal.older_than_ms)
        for some in _batches(left, PURGE_BATCH):
            async with self._piece() as connection:
                # Asked in this transaction: one that was retried meanwhile stays.
                ended = delete(executions).where(executions.c.id.in_(some), over)
                gone = list(await connection.scalars(ended.returning(executions.c.id)))
                for table in others if gone else ():
                    await connection.execute(delete(table).where(table.c[table.info["day_key"]].in_(gone)))
        await self._delete_requests(removal)
        await self._delete_workspaces(removal)

    async def _delete_workspaces(self, removal: Removal) -> None:
        """What workers wrote down of workspaces, as states of their built-in agent, by execution."""
        there = select(executions.c.id).where(executions.c.id == agent_states.c.instance).exists()
        of_tools = and_(agent_states.c.tenant_id == removal.tenant, agent_states.c.agent_id == TOOLS_AGENT)
        for some in _batches(removal.ids):
            known = and_(of_tools, agent_states.c.instance.in_(some))
            async with self._database.system_read() as connection:
                found = await connection.scalar(select(func.count()).select_from(agent_states).where(known))
            if found:
                async with self._piece() as connection:
                    await connection.execute(delete(agent_states).where(known, ~there))

    async def _delete_requests(self, removal: Removal) -> None:
        """Those whose execution is gone: they are older than its end."""
        made = idempotency_keys.c.resource_id
        there = select(executions.c.id).where(executions.c.id == made).exists()
        of_tenant = idempotency_keys.c.tenant_id == removal.tenant
        old = idempotency_keys.c.created_at_ms < removal.older_than_ms
        some = select(made).where(of_tenant, old, ~there).order_by(made).limit(_BATCH)
        after = ""
        while True:
            async with self._piece() as connection:
                found = list(await connection.scalars(some.where(made > after)))
                if not found:
                    return
                await connection.execute(delete(idempotency_keys).where(of_tenant, old, made.in_(found)))
            after = found[-1]

    async def _drop_shelves(self, removal: Removal) -> None:
        """After the rows, so that what is listed can be read; killed in between, the next run finds orphans."""
        if not removal.ids:
            return
        table = _OWNERS[Retention(removal.kind)]
        ids = set(removal.ids)
        shelves = [use.shelf for use in await self._artifacts.shelves(removal.tenant)]
        for some in _batches(sorted({execution_of(shelf.owner) for shelf in shelves} & ids)):
            async with self._database.system_read() as connection:
                gone = set(some) - set(await connection.scalars(select(table.c.id).where(table.c.id.in_(some))))
            for shelf in shelves:
                if execution_of(shelf.owner) in gone:
                    await self._artifacts.drop(shelf)

    async def _delete_rows(self, removal: Removal) -> None:
        table, _ = _BY_AGE[Retention(removal.kind)]
        keys = list(table.primary_key.columns)
        aged = _aged(Retention(removal.kind), removal.tenant, removal.older_than_ms)
        some = select(*keys).where(aged).limit(_BATCH)
        while True:
            async with self._piece() as connection:
                found = [tuple(row) for row in await connection.execute(some)]
                if not found:
                    return
                await connection.execute(delete(table).where(tuple_(*keys).in_(found)))

    @asynccontextmanager
    async def _piece(self) -> AsyncIterator[AsyncConnection]:
        """One transaction of the purge, and a rest after it: so it is a small share of what the disk has to do."""
        begun = perf_counter()
        async with self._database.system_write() as connection:
            yield connection
        await _rest_after(begun, PURGE_REST)

    async def _give_back_disk(self) -> None:
        """SQLite: a part at a time, so that commits come between. A file made without this ability keeps its pages."""
        free = -1
        while self._database.engine == "sqlite":
            async with self._database.owning() as connection:
                before, free = free, await connection.scalar(text("PRAGMA freelist_count")) or 0
                if free in (0, before):
                    return
                driver = (await connection.get_raw_connection()).driver_connection
                # A script is run to its end; a statement would free one page.
                await driver.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")  # type: ignore[union-attr]


async def _rest_after(begun_s: float, times: int) -> None:
    await asyncio.sleep(min((perf_counter() - begun_s) * times, PURGE_REST_S_MAX))


def _history_tables() -> list[Table]:
    return [table for table in metadata.sorted_tables if table.info.get("retention") is Retention.HISTORY]


def _over(tenant: str, cutoff_ms: int) -> ColumnElement[bool]:
    return and_(executions.c.tenant_id == tenant, executions.c.ended_at_ms < cutoff_ms)


def _aged(kind: Retention, tenant: str, cutoff_ms: int) -> ColumnElement[bool]:
    table, moment = _BY_AGE[kind]
    aged = and_(table.c.tenant_id == tenant, moment < cutoff_ms)
    if kind is not Retention.AGENT_STATE:
        return aged
    newer = agent_states.alias()
    replaced = (
        select(newer.c.version)
        .where(
            newer.c.tenant_id == agent_states.c.tenant_id,
            newer.c.agent_id == agent_states.c.agent_id,
            newer.c.instance == agent_states.c.instance,
            newer.c.version > agent_states.c.version,
        )
        .exists()
    )
    return and_(aged, replaced)


def _outside(ids: Sequence[str], emptied: Sequence[Part]) -> list[str]:
    """Those of the sorted ids that lie in none of these parts of `executions`."""
    left = list(ids)
    for part in emptied:
        if part.table == executions.name:
            first, after = bounds(part.table, part.day)
            del left[bisect_left(left, first) : bisect_left(left, after)]
    return left


def _batches(ids: Sequence[str], size: int = _BATCH) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
