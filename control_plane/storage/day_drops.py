"""Takes days of a divided table away, so that hardly anybody notices (PostgreSQL).

First the parts of a day are emptied: what must stay of them is set aside, they are cut to nothing, which frees their
disk, and what stays is put back. That locks the parts of this one day and nothing else, so work on other days goes on.
Then the parts of several days are dropped together. That locks the whole tables, and makes every session plan its
statements anew: some milliseconds, because there is nothing left in the parts but the few rows that move to the
default part. Where more than a few must stay, the parts stay too, until a later purge finds less in them.

The owner of the tables does it. It is bound by row-level security and sees no row, so the system's role looks and
moves.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.storage.database import Database
from control_plane.storage.days import Part, bounds, run, wait_briefly
from control_plane.storage.roles import SYSTEM_ROLE
from control_plane.storage.tables import metadata

_log = structlog.get_logger(__name__)

Keep = Callable[[Part], str]


async def empty_day(database: Database, parts: Sequence[Part], *, keep: Keep = lambda _: "false") -> int:
    """Remove what these parts of one day hold, but for the rows for which `keep` holds; how many rows those are.

    `keep` gives an SQL condition for each part, asked with the rights of the system's role. It sees a row as `old`.
    Raises, with nothing changed, where somebody else uses the parts and does not end soon; may be tried again.
    """
    staying = {
        part: f"SELECT {_columns(part.table)} FROM {part.table} AS old WHERE {inside(part)} AND ({keep(part)})"  # noqa: S608
        for part in parts
    }
    kept = 0
    async with database.owning() as connection:
        await wait_briefly(connection)
        names = ", ".join(part.name for part in parts)
        await run(connection, f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        filled = await _those_with_any(connection, {part: _everything(part) for part in parts})
        some_stay = await _those_with_any(connection, {part: staying[part] for part in filled})
        for part in some_stay:
            kept += await _set_aside(connection, part, staying[part])
        if filled:
            await run(connection, f"TRUNCATE {', '.join(part.name for part in filled)}")
        if some_stay:
            await run(connection, f"SET LOCAL ROLE {SYSTEM_ROLE}")
        for part in some_stay:
            await run(connection, _copying(part.table, _aside(part)))
    _log.info("day.emptied", parts=[part.name for part in parts], kept=kept)
    return kept


async def drop_emptied(database: Database, parts: Sequence[Part]) -> None:
    """Take emptied parts away, of whichever days; the few rows that they hold stay in the tables. Raises as above."""
    async with database.owning() as connection:
        await wait_briefly(connection)
        # The tables before their parts, as everybody else locks them.
        tables = ", ".join(dict.fromkeys(part.table for part in parts))
        await run(connection, f"LOCK TABLE ONLY {tables} IN ACCESS EXCLUSIVE MODE")
        left = {part: f"SELECT FROM {part.table} WHERE {inside(part)}" for part in parts}
        for part in await _those_with_any(connection, left):
            await _move_out(connection, part)
        await run(connection, f"DROP TABLE {', '.join(part.name for part in parts)}")
    _log.info("days.dropped", parts=[part.name for part in parts])


async def _those_with_any(connection: AsyncConnection, rows: Mapping[Part, str]) -> list[Part]:
    """Which of these queries find anything. They go through the tables, because nobody may look into a part."""
    if not rows:
        return []
    await run(connection, f"SET LOCAL ROLE {SYSTEM_ROLE}")
    asked = ", ".join(f"EXISTS ({query})" for query in rows.values())
    found = (await connection.exec_driver_sql(f"SELECT {asked}")).one()
    await run(connection, "RESET ROLE")
    return [part for part, any_there in zip(rows, found, strict=True) if any_there]


async def _set_aside(connection: AsyncConnection, part: Part, staying: str) -> int:
    await run(connection, f"CREATE TEMP TABLE {_aside(part)} (LIKE {part.table}) ON COMMIT DROP")
    await run(connection, f"GRANT SELECT, INSERT ON {_aside(part)} TO {SYSTEM_ROLE}")
    await run(connection, f"SET LOCAL ROLE {SYSTEM_ROLE}")
    copied = await connection.exec_driver_sql(f"INSERT INTO {_aside(part)} ({_columns(part.table)}) {staying}")
    await run(connection, "RESET ROLE")
    return copied.rowcount


async def _move_out(connection: AsyncConnection, part: Part) -> None:
    """Into the default part, which takes ids of a day that has no part."""
    await run(connection, f"ALTER TABLE {part.table} DETACH PARTITION {part.name}")
    await run(connection, f"ALTER TABLE {part.name} DISABLE ROW LEVEL SECURITY")
    await run(connection, f"GRANT SELECT ON {part.name} TO {SYSTEM_ROLE}")
    await run(connection, f"SET LOCAL ROLE {SYSTEM_ROLE}")
    await run(connection, _copying(part.table, part.name))
    await run(connection, "RESET ROLE")


def _everything(part: Part) -> str:
    return f"SELECT FROM {part.table} WHERE {inside(part)}"


def still_needed(ended_after_ms: int) -> Keep:
    """Keep what belongs to executions that are open, or ended lately."""
    return of_executions(f"ended_at_ms IS NULL OR ended_at_ms > {int(ended_after_ms)}")


def of_executions(wanted: str) -> Keep:
    """Keep what belongs to executions of the day for which `wanted` holds."""

    def condition(part: Part) -> str:
        key = metadata.tables[part.table].info["day_key"]
        listed = Part(part.day, "executions")
        return f"old.{key} IN (SELECT id FROM executions WHERE {inside(listed)} AND ({wanted}))"  # noqa: S608

    return condition


def inside(part: Part) -> str:
    first, after = bounds(part.table, part.day)
    key = metadata.tables[part.table].info["day_key"]
    return f"{key} >= '{first}' AND {key} < '{after}'"


def _columns(table: str) -> str:
    return ", ".join(column.name for column in metadata.tables[table].columns)


def _copying(table: str, origin: str) -> str:
    overriding = " OVERRIDING SYSTEM VALUE" if any(column.identity for column in metadata.tables[table].columns) else ""
    return f"INSERT INTO {table} ({_columns(table)}){overriding} SELECT {_columns(table)} FROM {origin}"  # noqa: S608


def _aside(part: Part) -> str:
    return f"aside_{part.name}"
