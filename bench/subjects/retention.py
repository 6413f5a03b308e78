"""A purge of 5 million events over 30 days that keeps 7 (PostgreSQL): the disk before and after, and if starts wait.

Starts are committed at a fixed rate, whether or not the last one is done, as they come from outside; before, beside and
after the purge, which is the one that control planes run every day: a process of its own.

What it must show (UA-1): 70 % are free within 60 s, and the p99 of starts is at most 1.5 times the quiet one. A p99 of
a minute is the place of some fifty starts and moves with all that goes on on the machine; the share of starts above
that bound says the same (at most 1 %), and how far it is from failing.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import quantiles

from rich.console import Console
from sqlalchemy import text

from agentflow.clock import SystemClock
from agentflow.devstack.postgres import postgres_server
from agentflow.settings import inherited_environment
from bench.month import Month, finished
from bench.report import Figures, Results
from control_plane.daily_purge import in_a_process_of_its_own
from control_plane.storage.database import Database, database
from control_plane.storage.days import Part, day_of
from control_plane.storage.event_store import SqlEventStore

EVENTS = 5_000_000
KEPT_DAYS = 7
STARTS_PER_S = 100
SLOWER_MAX = 1.5
QUIET_S = 20.0  # before, and again after: the quieter one counts, since the disk may still be busy with what was loaded


def run(console: Console) -> Results:
    return {"postgresql": {f"{EVENTS:,} events": asyncio.run(measured(console, EVENTS))}}


async def measured(console: Console, events: int, *, quiet_s: float = QUIET_S) -> Figures:
    with tempfile.TemporaryDirectory(prefix="agentflow-") as folder:
        async with postgres_server(Path(folder)) as server, database(dsn := await server.create_database()) as db:
            console.print(f"writing {events:,} events ...", style="dim")
            month = Month(SystemClock().now_ms(), events=events)
            epochs = await month.write(db, dsn)
            settings = {
                "AF_DB_DSN": dsn,
                "AF_ARTIFACTS_URL": f"file://{folder}/artifacts",
                "AF_HOME": folder,
                "AF_RETENTION": f"history={KEPT_DAYS}d",
            }
            return await beside_starts(db, epochs, month.now_ms, inherited_environment() | settings, quiet_s)


async def beside_starts(
    db: Database, epochs: dict[int, int], now_ms: int, environment: dict[str, str], quiet_s: float
) -> Figures:
    starts = Starts(SqlEventStore(db), epochs, now_ms)
    await starts.for_seconds(quiet_s / 5)  # plans are made, files are open
    before = await relation_bytes(db, now_ms)
    quiet_before = await starts.for_seconds(quiet_s)
    begun = time.perf_counter()
    purge = asyncio.create_task(in_a_process_of_its_own(environment))
    freed = asyncio.create_task(freed_after(db, now_ms, before * 0.3, purge.done))
    beside = await starts.while_(lambda: not purge.done())
    await purge
    took_s = time.perf_counter() - begun
    after = await relation_bytes(db, now_ms)
    quiet_ms = min(_p99(quiet_before), _p99(await starts.for_seconds(quiet_s)))
    return {
        "bytes before": float(before),
        "bytes after": float(after),
        "freed share": 1 - after / before,
        "s until 70 % were free": await freed,
        "s until all was done": took_s,
        "start p99 ms, quiet": quiet_ms,
        "start p99 ms, purging": _p99(beside),
        "purging / quiet": _p99(beside) / quiet_ms,
        "% of starts above the bound": 100 * sum(ms > SLOWER_MAX * quiet_ms for ms in beside) / len(beside),
    }


class Starts:
    """Executions that start at a fixed rate; each has what it took in milliseconds from the moment it was due."""

    def __init__(self, store: SqlEventStore, epochs: dict[int, int], now_ms: int) -> None:
        self._store = store
        self._epochs = epochs
        self._now_ms = now_ms
        self._numbers = count(10**9)

    async def for_seconds(self, seconds: float) -> list[float]:
        ends = time.perf_counter() + seconds
        return await self.while_(lambda: time.perf_counter() < ends)

    async def while_(self, goes_on: Callable[[], bool]) -> list[float]:
        taken: list[float] = []
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as under_way:
            for number in count():
                due = begun + number / STARTS_PER_S
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                if not goes_on():
                    break
                under_way.create_task(self._start(due, taken))
        return taken

    async def _start(self, due: float, taken: list[float]) -> None:
        await self._store.append([finished(next(self._numbers), self._now_ms, length=2)], self._epochs)
        taken.append((time.perf_counter() - due) * 1e3)


async def freed_after(db: Database, now_ms: int, wanted_bytes: float, over: Callable[[], bool]) -> float:
    """Seconds until no more than that is left; looked at twice a second."""
    begun = time.perf_counter()
    while True:
        if over() or await relation_bytes(db, now_ms) <= wanted_bytes:
            return time.perf_counter() - begun
        await asyncio.sleep(0.5)


async def relation_bytes(db: Database, now_ms: int) -> int:
    """What the events take on disk, with their indexes; without today's, where the starts beside the purge go."""
    today = Part(day_of(now_ms), "event_store").name
    parts = (
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits"
        f" WHERE inhparent = 'event_store'::regclass AND inhrelid <> '{today}'::regclass"
    )
    async with db.system_read() as connection:
        return int(await connection.scalar(text(parts)))


def _p99(taken: list[float]) -> float:
    return quantiles(taken, n=100)[98] if len(taken) > 1 else 0.0
