"""Days: under PostgreSQL, tables that grow with work are divided by the day in their rows' ids, to be dropped whole.

An id begins with its kind and a ULID (`exec_01J…`), so byte order is the order of time and a day is a range of ids. The
column that divides is part of every unique key, so those keys hold over all days. What no day was made for (other ids,
clocks that jump, a maintenance that did not run) lands in the default part and is moved when its day is made: nothing
depends on this file running on time. SQLite has no such parts; there the purge deletes rows, some at a time.

Only here are parts made, and only in `day_drops` emptied and dropped. Both need the owner of the tables
(`Database.owning`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta

import msgspec
import structlog
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.clock import Clock
from agentflow.errors import AgentFlowError
from agentflow.ids import encode_ulid
from agentflow.limits import DATABASE_IDLE_S, DAYS_AHEAD, DAYS_LOCK_WAIT_S
from control_plane.storage.database import Database
from control_plane.storage.tables import metadata

_log = structlog.get_logger(__name__)

_KINDS = {"audits": "aud_"}  # what the ids of the other tables begin with is `exec_`
_CHANCE_BITS = 80


class Part(msgspec.Struct, frozen=True, order=True):
    day: date
    table: str

    @property
    def name(self) -> str:
        return f"{self.table}_{self.day:%Y%m%d}"


def divided_tables() -> list[Table]:
    return [table for table in metadata.sorted_tables if "day_key" in table.info]


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def bounds(table: str, day: date) -> tuple[str, str]:
    """The first id of the day, and the first after it."""
    return _first_id(table, day), _first_id(table, day + timedelta(days=1))


def _first_id(table: str, day: date) -> str:
    at_ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
    return _KINDS.get(table, "exec_") + encode_ulid(at_ms << _CHANCE_BITS)


async def parts(database: Database) -> Sequence[Part]:
    """The days there are, oldest first; none under SQLite."""
    if database.engine != "postgresql":
        return []
    async with database.system_read() as connection:
        return await _parts(connection)


async def _parts(connection: AsyncConnection) -> list[Part]:
    query = text(
        "SELECT parent.relname, part.relname FROM pg_inherits"
        " JOIN pg_class AS parent ON parent.oid = inhparent JOIN pg_class AS part ON part.oid = inhrelid"
        " WHERE parent.relkind = 'p' AND parent.relnamespace = current_schema()::regnamespace"
        " AND part.relname ~ '_[0-9]{8}$'"
    )
    return sorted(
        Part(datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date(), table)
        for table, name in await connection.execute(query)
    )


@asynccontextmanager
async def days_made(database: Database, clock: Clock) -> AsyncIterator[None]:
    """Make them now, and look again every hour while the block runs. A failure costs nothing but a later attempt."""

    async def attempt() -> None:
        try:
            await make_days(database, clock.now_ms())
        except AgentFlowError as error:
            _log.warning("days.not_made", reason=error.message)

    async def every_hour() -> None:
        while True:
            await clock.sleep(3_600)
            await attempt()

    await attempt()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(every_hour(), name="days")
        try:
            yield
        finally:
            task.cancel()


async def make_days(database: Database, now_ms: int, *, ahead: int = DAYS_AHEAD) -> int:
    """Make the parts for today and the days ahead where they are missing; how many were made."""
    if database.engine != "postgresql":
        return 0
    today = day_of(now_ms)
    there = set(await parts(database))
    missing = [
        part
        for table in divided_tables()
        for days in range(ahead + 1)
        if (part := Part(today + timedelta(days=days), table.name)) not in there
    ]
    for part in missing:
        async with database.owning() as connection:
            await _make(connection, part)
    if missing:
        _log.info("days.made", parts=len(missing))
    return len(missing)


async def _make(connection: AsyncConnection, part: Part) -> None:
    """Attaching takes no lock that a writer would notice, except on the default part, and that one is all but empty."""
    await wait_briefly(connection)
    # Two control planes may be at it.
    await connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('agentflow.days'))"))
    if await connection.scalar(text("SELECT to_regclass(:name)"), {"name": part.name}) is not None:
        return
    first, after = bounds(part.table, part.day)
    key = metadata.tables[part.table].info["day_key"]
    default = f"{part.table}_default"
    await run(connection, f"CREATE TABLE {part.name} (LIKE {part.table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    await run(connection, f"ALTER TABLE {default} NO FORCE ROW LEVEL SECURITY")
    taken = f"DELETE FROM {default} WHERE {key} >= '{first}' AND {key} < '{after}' RETURNING *"  # noqa: S608 - our names
    await run(connection, f"WITH moved AS ({taken}) INSERT INTO {part.name} SELECT * FROM moved")  # noqa: S608
    await run(connection, f"ALTER TABLE {default} FORCE ROW LEVEL SECURITY")
    await run(
        connection, f"ALTER TABLE {part.table} ATTACH PARTITION {part.name} FOR VALUES FROM ('{first}') TO ('{after}')"
    )
    for how in ("ENABLE", "FORCE"):  # no rights and no policies: the only way in is through the table
        await run(connection, f"ALTER TABLE {part.name} {how} ROW LEVEL SECURITY")


async def wait_briefly(connection: AsyncConnection) -> None:
    """Whoever waits for a lock holds up all who come after: rather give up and come again later.

    Nor may one of us who stands still in the middle, frozen or cut off, keep what it has locked.
    """
    await run(connection, f"SET LOCAL lock_timeout = {int(DAYS_LOCK_WAIT_S * 1000)}")
    await run(connection, f"SET LOCAL idle_in_transaction_session_timeout = {int(DATABASE_IDLE_S * 1000)}")


async def run(connection: AsyncConnection, statement: str) -> None:
    await connection.exec_driver_sql(statement)
