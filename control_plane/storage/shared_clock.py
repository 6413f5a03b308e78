"""One time for all control planes of a PostgreSQL: the server's, carried on between looks by a clock nobody can set.

A machine's own wall clock may be wrong, jump or stand still. Timers that one replica sets and another fires, leases and
records must not follow it. On SQLite there is one machine and one clock, which `agentflow.clock.SystemClock` reads.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from sqlalchemy import text

from agentflow import limits
from agentflow.clock import Clock, SystemClock
from agentflow.ports import StorageUnavailable
from control_plane.storage.database import Database

_log = structlog.get_logger(__name__)

_NOW = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class SharedClock(SystemClock):
    """Says what it was told last, and what has passed since."""

    def __init__(self) -> None:
        self._told_ms = super().now_ms()
        self._told_at_s = self.monotonic_s()

    def now_ms(self) -> int:
        return self._told_ms + int((self.monotonic_s() - self._told_at_s) * 1000)

    def told(self, now_ms: int, *, asked_s: float, answered_s: float) -> int:
        """It was `now_ms` at some moment between; returns by how much we were wrong, and are not any more.

        What may be nothing but the way of the question is left alone: time should not tremble.
        """
        middle_s = (asked_s + answered_s) / 2
        wrong_ms = self._told_ms + int((middle_s - self._told_at_s) * 1000) - now_ms
        if abs(wrong_ms) <= limits.CLOCK_SLACK_MS + (answered_s - asked_s) * 500:
            return 0
        self._told_ms, self._told_at_s = now_ms, middle_s
        return wrong_ms


@asynccontextmanager
async def shared_clock(db: Database) -> AsyncIterator[Clock]:
    """The clock for a control plane on this database, right from the first moment and kept right."""
    if db.engine == "sqlite":
        yield SystemClock()
        return
    clock = SharedClock()
    await _look(db, clock)
    looking = asyncio.create_task(_look_again_and_again(db, clock), name="shared clock")
    try:
        yield clock
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look_again_and_again(db: Database, clock: SharedClock) -> None:
    while True:
        await clock.sleep(limits.CLOCK_LOOK_S)
        try:
            await _look(db, clock)
        except StorageUnavailable as error:
            _log.debug("clock.carried_on", reason=error.message)


async def _look(db: Database, clock: SharedClock) -> None:
    async with db.system_read() as connection:
        asked_s = clock.monotonic_s()
        now_ms = int(await connection.scalar(_NOW))
        wrong_ms = clock.told(now_ms, asked_s=asked_s, answered_s=clock.monotonic_s())
    if wrong_ms:
        _log.warning("clock.corrected", wrong_by_ms=wrong_ms)
