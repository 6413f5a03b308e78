"""Runs the purge once a day, on whichever control plane comes first.

The last run is a row that only one replica can move on (a conditional update), so two never run at once by schedule; a
run by hand beside it does no harm, because what is gone is not there to be removed twice.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from agentflow.clock import Clock
from agentflow.errors import AgentFlowError
from agentflow.limits import RETENTION_EVERY_S
from control_plane.storage.database import Database
from control_plane.storage.tables import deployment

_log = structlog.get_logger(__name__)

_LAST = "retention.last_run_ms"
_LOOK_S = 3600


@asynccontextmanager
async def retention_kept(
    database: Database, purge: Callable[[], Awaitable[object]], clock: Clock
) -> AsyncIterator[None]:
    """Look every hour while the block runs. A failure costs nothing but a later attempt."""

    async def every_hour() -> None:
        while True:
            try:
                if await claim(database, clock.now_ms()):
                    await purge()
            except AgentFlowError as error:
                _log.warning("retention.postponed", reason=error.message)
            await clock.sleep(_LOOK_S)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(every_hour(), name="retention")
        try:
            yield
        finally:
            task.cancel()


async def claim(database: Database, now_ms: int, *, every_s: float = RETENTION_EVERY_S) -> bool:
    """Whether a run is due and ours. The first one is due a day after the database was first used."""
    async with database.system_read() as connection:
        last = await connection.scalar(select(deployment.c.value).where(deployment.c.name == _LAST))
    if last is None:
        try:
            async with database.system_write() as connection:
                await connection.execute(insert(deployment).values(name=_LAST, value=str(now_ms)))
        except IntegrityError:
            return False
        return False
    if int(last) > now_ms - every_s * 1000:
        return False
    taking = update(deployment).where(deployment.c.name == _LAST, deployment.c.value == last).values(value=str(now_ms))
    async with database.system_write() as connection:
        return (await connection.execute(taking)).rowcount == 1
