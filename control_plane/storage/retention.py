"""Removes what its retention has ended for, and says beforehand exactly what that is.

`plan` and `run` are the same computation: a run makes the plan, then removes it. Executions go whole: their
events, snapshots, plans, remembered requests and artifacts. Under PostgreSQL a day of which most is over is dropped as
a part, which frees its disk at once; everything else, and everything under SQLite, is deleted some rows at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import structlog
from sqlalchemy import ColumnElement, Table, and_, delete, func, select, text, tuple_

from agentflow.limits import RETENTION_ORPHAN_S
from agentflow.ports import ArtifactStore, Shelf
from control_plane.storage.database import Database
from control_plane.storage.days import Part, bounds, drop_day, parts
from control_plane.storage.exports import Exports
from control_plane.storage.retention_rules import Rules
from control_plane.storage.tables import (
    agent_states,
    audits,
    cost_observations,
    executions,
    human_tasks,
    idempotency_keys,
    metadata,
    snapshots,
)
from control_plane.storage.tables.types import Retention

_log = structlog.get_logger(__name__)

_BATCH = 500  # executions, or rows, in one transaction
_VACUUM_PAGES = 2_000  # given back in one go: some milliseconds
_DROP_SHARE = 0.5  # of a day's executions must be over before what is left of it is worth moving

# Tables whose rows end by their own age: the moment it is counted from.
_BY_AGE = {
    Retention.AUDIT: (audits, audits.c.at_ms),
    Retention.COST: (cost_observations, cost_observations.c.at_ms),
    Retention.SNAPSHOT: (snapshots, snapshots.c.created_at_ms),
    Retention.TASK: (human_tasks, human_tasks.c.completed_at_ms),
    Retention.AGENT_STATE: (agent_states, agent_states.c.created_at_ms),
}


class Removal(msgspec.Struct, frozen=True, order=True):
    """What goes of one kind of one tenant. `items` are executions, or rows where nothing belongs together."""

    tenant: str
    kind: str
    older_than_ms: int
    items: int
    ids: tuple[str, ...] = ()  # of executions


class Plan(msgspec.Struct, frozen=True):
    at_ms: int
    removals: tuple[Removal, ...]
    orphans: tuple[str, ...] = ()  # artifacts that belong to no execution, as tenant/owner


class RetentionJob:
    def __init__(self, database: Database, artifacts: ArtifactStore, rules: Rules, exports: Exports) -> None:
        self._database = database
        self._artifacts = artifacts
        self._rules = rules
        self._exports = exports

    async def plan(self, now_ms: int) -> Plan:
        """Exactly what a run at that moment removes."""
        tenants = await self._tenants()
        removals = [removal for tenant in tenants for removal in await self._removals(tenant, now_ms)]
        return Plan(now_ms, tuple(sorted(removals)), await self._orphans(now_ms))

    async def run(self, now_ms: int) -> Plan:
        plan = await self.plan(now_ms)
        history = [removal for removal in plan.removals if removal.kind == Retention.HISTORY]
        for removal in history:
            await self._export_history(removal, plan.at_ms)
        dropped = await self._drop_days(history)
        for removal in plan.removals:
            if removal.kind == Retention.HISTORY:
                await self._delete_history(removal, dropped)
            else:
                await self._delete_rows(removal, plan.at_ms)
        for orphan in plan.orphans:
            tenant, _, owner = orphan.partition("/")
            await self._artifacts.drop(Shelf(tenant, owner))
        await self._give_back_disk()
        _log.info("retention.ran", removals=len(plan.removals), items=sum(removal.items for removal in plan.removals))
        return plan

    async def _tenants(self) -> Sequence[str]:
        found: set[str] = set()
        async with self._database.system_read() as connection:
            for table in (executions, *(table for table, _ in _BY_AGE.values())):
                found |= set(await connection.scalars(select(table.c.tenant_id).distinct()))
        return sorted(found)

    async def _removals(self, tenant: str, now_ms: int) -> list[Removal]:
        removals = []
        cutoff = self._rules.cutoff_ms(tenant, Retention.HISTORY, now_ms)
        async with self._database.system_read() as connection:
            if cutoff is not None:
                query = select(executions.c.id).where(_over(tenant, cutoff)).order_by(executions.c.id)
                ids = tuple(await connection.scalars(query))
                if ids:
                    removals.append(Removal(tenant, Retention.HISTORY, cutoff, len(ids), ids))
            for kind in _BY_AGE:
                cutoff = self._rules.cutoff_ms(tenant, kind, now_ms)
                if cutoff is not None:
                    rows = await connection.scalar(
                        select(func.count()).select_from(_BY_AGE[kind][0]).where(_aged(kind, tenant, cutoff))
                    )
                    if rows:
                        removals.append(Removal(tenant, kind, cutoff, rows))
        return removals

    async def _orphans(self, now_ms: int) -> tuple[str, ...]:
        """Artifacts whose execution was never committed: put by a process that was killed in between."""
        settled = [
            use.shelf for use in await self._artifacts.shelves() if use.newest_ms < now_ms - RETENTION_ORPHAN_S * 1000
        ]
        known: set[str] = set()
        async with self._database.system_read() as connection:
            for some in _batches(sorted({shelf.owner for shelf in settled})):
                known |= set(await connection.scalars(select(executions.c.id).where(executions.c.id.in_(some))))
        return tuple(f"{shelf.tenant}/{shelf.owner}" for shelf in settled if shelf.owner not in known)

    async def _export_history(self, removal: Removal, at_ms: int) -> None:
        if not self._exports.wanted:
            return
        for number, ids in enumerate(_batches(removal.ids)):
            for table in _history_tables():
                key = table.c[table.info["day_key"]]
                async with self._database.system_read() as connection:
                    rows = (await connection.execute(select(table).where(key.in_(ids)))).mappings().all()
                await self._exports.write(
                    f"{removal.tenant}/{_stamp(at_ms)}-{number:06}-{table.name}", table.name, rows
                )

    async def _drop_days(self, history: Sequence[Removal]) -> set[str]:
        """Drop whole days; the ids that went with them."""
        gone: set[str] = set()
        going = {execution for removal in history for execution in removal.ids}
        days = {part.day for part in await parts(self._database) if part.table == executions.name}
        for day in sorted(days):
            first, after = bounds(executions.name, day)
            ids = {execution for execution in going if first <= execution < after}
            if not ids:
                continue
            async with self._database.system_read() as connection:
                inside = (
                    select(func.count())
                    .select_from(executions)
                    .where(executions.c.id >= first, executions.c.id < after)
                )
                total = await connection.scalar(inside) or 0
            if len(ids) < total * _DROP_SHARE:
                continue
            dropping = [Part(day, table.name) for table in _history_tables()]
            await drop_day(self._database, dropping, keep=_still_kept(history))
            gone |= ids
        return gone

    async def _delete_history(self, removal: Removal, dropped: set[str]) -> None:
        left = [execution for execution in removal.ids if execution not in dropped]
        shelved = {use.shelf.owner for use in await self._artifacts.shelves(removal.tenant)}
        others = [table for table in _history_tables() if table is not executions]
        for ids in _batches(left):
            async with self._database.system_write() as connection:
                # Asked again in this transaction: one that was retried meanwhile stays.
                ended = delete(executions).where(executions.c.id.in_(ids), _over(removal.tenant, removal.older_than_ms))
                gone = list(await connection.scalars(ended.returning(executions.c.id)))
                for table in others:
                    await connection.execute(delete(table).where(table.c[table.info["day_key"]].in_(gone)))
        for ids in _batches(removal.ids):
            async with self._database.system_write() as connection:
                still = set(await connection.scalars(select(executions.c.id).where(executions.c.id.in_(ids))))
                gone = [execution for execution in ids if execution not in still]
                await connection.execute(delete(idempotency_keys).where(idempotency_keys.c.resource_id.in_(gone)))
            for execution in gone:
                if execution in shelved:
                    await self._artifacts.drop(Shelf(removal.tenant, execution))

    async def _delete_rows(self, removal: Removal, at_ms: int) -> None:
        table, _ = _BY_AGE[Retention(removal.kind)]
        keys = list(table.primary_key.columns)
        aged = _aged(Retention(removal.kind), removal.tenant, removal.older_than_ms)
        number = 0
        while True:
            async with self._database.system_read() as connection:
                found = await connection.execute(select(table).where(aged).order_by(*keys).limit(_BATCH))
                rows = found.mappings().all()
            if not rows:
                return
            await self._exports.write(f"{removal.tenant}/{_stamp(at_ms)}-{number:06}-{table.name}", table.name, rows)
            wanted = [tuple(row[key.name] for key in keys) for row in rows]
            async with self._database.system_write() as connection:
                await connection.execute(delete(table).where(tuple_(*keys).in_(wanted)))
            number += 1

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


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), _BATCH):
        yield ids[at : at + _BATCH]


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")


def _still_kept(history: Sequence[Removal]) -> Callable[[Part], str]:
    """The SQL for rows that stay: of executions that are not over for their tenant."""

    def condition(part: Part) -> str:
        key = metadata.tables[part.table].info["day_key"]
        over = " OR ".join(
            f"(tenant_id = {_literal(removal.tenant)} AND ended_at_ms < {int(removal.older_than_ms)})"
            for removal in history
        )
        listed = Part(part.day, executions.name).name
        return f"old.{key} IN (SELECT id FROM {listed} WHERE ended_at_ms IS NULL OR NOT ({over}))"  # noqa: S608

    return condition


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"  # standard_conforming_strings is on: a backslash means itself
