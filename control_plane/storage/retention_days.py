"""The part of a purge that drops whole days: which days are worth it, and what of them must stay (PostgreSQL).

Called by `retention` for each kind whose tables are divided into days. What lies in days that are not worth it, or that
somebody is using, it leaves to the purge's own deletes. It decides by the same rule and moment as the plan does.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.errors import AgentFlowError
from agentflow.limits import (
    DAY_DROP_ATTEMPTS,
    DAY_DROP_REST_S_MAX,
    DAY_DROP_REST_S_PER_MB,
    DAY_MOVED_ROWS_MAX,
    DAYS_DROPPED_TOGETHER,
)
from control_plane.storage.database import Database
from control_plane.storage.day_drops import Keep, drop_emptied, empty_day, of_executions
from control_plane.storage.days import Part, bounds, parts, run
from control_plane.storage.retention_rules import Rules
from control_plane.storage.tables import metadata
from control_plane.storage.tables.types import Retention

_log = structlog.get_logger(__name__)

_DROP_SHARE = 0.8  # of a day must be over before what is left of it is worth copying; else rows are deleted

# By what each divided kind ends: the table, and the column with the moment that counts.
_ENDS = {
    Retention.HISTORY: ("executions", "ended_at_ms"),
    Retention.AUDIT: ("audits", "at_ms"),
    Retention.COST: ("cost_observations", "at_ms"),
    Retention.SNAPSHOT: ("snapshots", "created_at_ms"),
}


class _Ending(msgspec.Struct, frozen=True):
    """A kind at one moment. `over` is SQL that holds for rows of `table` whose time has come."""

    kind: Retention
    table: str
    over: str
    newest_ms: int  # nothing that began later can be over


async def drop_days(database: Database, rules: Rules, now_ms: int) -> list[Part]:
    """The parts of which nothing is left that is over, oldest first in each kind."""
    there = await parts(database)
    emptied: list[Part] = []
    for kind in _ENDS:
        ending = _ending(rules, kind, now_ms)
        if ending is None:
            continue
        droppable: list[tuple[int, list[Part]]] = []
        for day in await _worth_dropping(database, ending, there):
            of_day = [part for part in there if part.day == day and _kind(part) is kind]
            kept = await _emptied(database, of_day, _keeping(ending))
            if kept is not None:
                emptied += of_day
            if kept is not None and kept <= DAY_MOVED_ROWS_MAX:
                droppable.append((kept, of_day))
        for together in few_at_once(droppable):
            await _dropped(database, together)
    return emptied


def few_at_once(droppable: Iterable[tuple[int, list[Part]]]) -> Iterator[list[Part]]:
    """Parts of days that can go together: everybody waits meanwhile, so not many of them, nor with many rows left."""
    days, rows, together = 0, 0, list[Part]()
    for kept, of_day in droppable:
        if days == DAYS_DROPPED_TOGETHER or rows + kept > DAY_MOVED_ROWS_MAX:
            yield together
            days, rows, together = 0, 0, []
        days, rows = days + 1, rows + kept
        together = [*together, *of_day]
    if together:
        yield together


@asynccontextmanager
async def read_on_one_core(database: Database) -> AsyncIterator[AsyncConnection]:
    """For questions over whole tables, whose answers can wait: the other cores are for those who cannot."""
    async with database.system_read() as connection:
        if database.engine == "postgresql":
            await run(connection, "SET LOCAL max_parallel_workers_per_gather = 0")
        yield connection


def _ending(rules: Rules, kind: Retention, now_ms: int) -> _Ending | None:
    cutoffs = {tenant: rules.cutoff_ms(tenant, kind, now_ms) for tenant in rules.tenants(kind)}
    default = rules.cutoff_ms("", kind, now_ms)
    newest_ms = max((cutoff for cutoff in (default, *cutoffs.values()) if cutoff is not None), default=None)
    if newest_ms is None:
        return None  # kept for ever, by everybody
    table, moment = _ENDS[kind]
    whens = "".join(f" WHEN {_literal(tenant)} THEN {_number(cutoff)}" for tenant, cutoff in cutoffs.items() if tenant)
    cutoff = f"CASE tenant_id{whens} ELSE {_number(default)} END" if whens else _number(default)
    return _Ending(kind, table, f"{moment} < {cutoff}", newest_ms)


def _keeping(ending: _Ending) -> Keep:
    wanted = f"({ending.over}) IS NOT TRUE"
    return of_executions(wanted) if ending.kind is Retention.HISTORY else lambda _: wanted


def _kind(part: Part) -> Retention:
    kind: Retention = metadata.tables[part.table].info["retention"]
    return kind


async def _worth_dropping(database: Database, ending: _Ending, there: Sequence[Part]) -> list[date]:
    """The days of which enough is over, oldest first."""
    past = {
        part.name: part.day for part in there if part.table == ending.table and _midnight_ms(part) < ending.newest_ms
    }
    if not past:
        return []
    _, after = bounds(ending.table, max(past.values()))
    key = metadata.tables[ending.table].info["day_key"]
    query = (
        f"SELECT tableoid::regclass::text, count(*), count(*) FILTER (WHERE {ending.over})"  # noqa: S608
        f" FROM {ending.table} WHERE {key} < '{after}' GROUP BY 1"
    )
    async with read_on_one_core(database) as connection:
        found: Iterable[Any] = await connection.exec_driver_sql(query)
        counted = {name: (total, over) for name, total, over in found}
    empty = (0, 0)  # a day that is past and holds nothing has nothing to lose either
    shares = {day: counted.get(name, empty) for name, day in past.items()}
    return sorted(day for day, (total, over) in shares.items() if over >= total * _DROP_SHARE)


def _midnight_ms(part: Part) -> int:
    return int(datetime.combine(part.day, time(), UTC).timestamp() * 1000)


async def _emptied(database: Database, of_day: list[Part], keep: Keep) -> int | None:
    """How many rows had to stay; None where the day was in use all the time."""
    rest_s = min(await _megabytes(database, of_day) * DAY_DROP_REST_S_PER_MB, DAY_DROP_REST_S_MAX)
    for _ in range(DAY_DROP_ATTEMPTS):
        try:
            return await empty_day(database, of_day, keep=keep)
        except AgentFlowError as error:
            _log.info("day.in_use", parts=[part.name for part in of_day], reason=error.message)
        finally:
            await asyncio.sleep(rest_s)
    return None


async def _dropped(database: Database, dropping: list[Part]) -> None:
    """Emptied parts take no room, so where they are in use all the time they wait for the next purge."""
    for attempt in range(DAY_DROP_ATTEMPTS):
        try:
            await drop_emptied(database, dropping)
        except AgentFlowError as error:
            _log.info("day.in_use", parts=[part.name for part in dropping], reason=error.message)
            await asyncio.sleep(attempt + 1)
        else:
            return


async def _megabytes(database: Database, dropping: Sequence[Part]) -> float:
    sizes = " + ".join(f"pg_total_relation_size('{part.name}')" for part in dropping)
    async with database.system_read() as connection:
        size: int = (await connection.exec_driver_sql(f"SELECT {sizes}")).scalar_one()
    return size / 1e6


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"  # standard_conforming_strings is on: a backslash means itself


def _number(cutoff_ms: int | None) -> str:
    return "NULL" if cutoff_ms is None else str(int(cutoff_ms))


async def refresh_statistics(database: Database) -> None:
    """PostgreSQL looks by itself at the parts of a divided table, and never at the table as a whole."""
    if database.engine != "postgresql":
        return
    for table in metadata.sorted_tables:
        if "day_key" not in table.info:
            continue
        indexed = {column.name for index in table.indexes for column in index.columns} | {table.info["day_key"]}
        async with database.owning() as connection:
            dialect = connection.dialect.server_version_info or (0,)
            only = "ONLY " if dialect >= (18,) else ""  # before that, the parts are looked at again in any case
            await run(connection, "SET LOCAL vacuum_cost_delay = 2")
            await run(connection, f"ANALYZE {only}{table.name} ({', '.join(sorted(indexed))})")
