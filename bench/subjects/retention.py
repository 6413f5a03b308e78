"""A purge of 5 million events over 30 days that keeps 7 (PostgreSQL): the disk before and after, and if starts wait.

Beside the purge, starts are committed one after another; their 99th percentile is shown with and without it.
"""

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from functools import reduce
from pathlib import Path
from statistics import quantiles
from typing import Any

import asyncpg
from rich.console import Console
from sqlalchemy import text

from agentflow.artifacts.opening import open_artifacts
from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import ExecutionCompleted, ExecutionStarted, StepScheduled, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId, encode_ulid
from agentflow.ports import NewEvents
from bench.report import Figures, Results
from control_plane.storage.database import Database, database
from control_plane.storage.days import Part, day_of, make_days
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.exports import Exports
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.retention import RetentionJob
from control_plane.storage.retention_rules import parse_rules

EVENTS = 5_000_000
DAYS = 30
PER_RUN = 20
BATCH = 100
NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000


def run(console: Console) -> Results:
    return {"postgresql": {f"{EVENTS:,} events": asyncio.run(measured(console, EVENTS))}}


async def measured(console: Console, events: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="agentflow-") as folder:
        async with postgres_server(Path(folder)) as server, database(dsn := await server.create_database()) as db:
            await upgrade(db)
            await make_days(db, NOW_MS - DAYS * DAY_MS, ahead=DAYS + 1)
            store = SqlEventStore(db)
            epochs = dict(await SqlShardLeases(db).acquire(range(4), "bench", lease_s=24 * 3600))
            console.print(f"writing {events:,} events ...", style="dim")
            runs = events // PER_RUN
            for first in range(0, runs, BATCH):
                await store.append(
                    [one(number, DAYS * number / runs) for number in range(first, first + BATCH)], epochs
                )
            artifacts = await open_artifacts(f"file://{folder}/artifacts")
            job = RetentionJob(db, artifacts, parse_rules("history=7d"), Exports(None))
            await settled(dsn)
            before = await relation_bytes(db)
            quiet = await starts(store, epochs, seconds=10, first=10**9)
            begun = time.perf_counter()
            beside = await starts(store, epochs, until=job.run(NOW_MS), first=2 * 10**9)
            took_s = time.perf_counter() - begun
            after = await relation_bytes(db)
    return {
        "bytes before": float(before),
        "bytes after": float(after),
        "freed share": 1 - after / before,
        "purge s": took_s,
        "start p99 ms, quiet": quiet,
        "start p99 ms, purging": beside,
    }


async def settled(dsn: str) -> None:
    """History of a month was vacuumed and checkpointed long ago; what was loaded just now was not."""
    connection = await asyncpg.connect(dsn)
    for statement in ("VACUUM (ANALYZE)", "CHECKPOINT"):
        await connection.execute(statement)
    await connection.close()


async def relation_bytes(db: Database) -> int:
    """What the events take on disk, with their indexes; without today's, where the starts beside the purge go."""
    today = Part(day_of(NOW_MS), "event_store").name
    parts = (
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits"
        f" WHERE inhparent = 'event_store'::regclass AND inhrelid <> '{today}'::regclass"
    )
    async with db.system_read() as connection:
        return int(await connection.scalar(text(parts)))


async def starts(
    store: SqlEventStore,
    epochs: dict[int, int],
    *,
    first: int,
    seconds: float = 0,
    until: Coroutine[Any, Any, Any] | None = None,
) -> float:
    """The 99th percentile of committing a start, for some seconds or while something else runs."""
    other = None if until is None else asyncio.ensure_future(until)
    ends = time.perf_counter() + seconds
    taken: list[float] = []
    while (time.perf_counter() < ends) if other is None else not other.done():
        begun = time.perf_counter()
        await store.append([one(first + len(taken), DAYS, length=2)], epochs)
        taken.append((time.perf_counter() - begun) * 1e3)
        await asyncio.sleep(0)
    if other is not None:
        await other
    return quantiles(taken, n=100)[98] if len(taken) > 1 else 0.0


def one(number: int, day: float, length: int = PER_RUN) -> NewEvents:
    """A run of so many events that began on that day and ended at once."""
    at_ms = NOW_MS - int((DAYS - day) * DAY_MS)
    execution = ExecutionId(f"exec_{encode_ulid((at_ms << 80) | number)}")
    workflow = WorkflowRef(WorkflowId("wf_1"), "bench", "1.0.0", "d1")
    events = [
        ExecutionStarted(at_ms, execution, TenantId("bench"), workflow, {"n": number}, TraceId("t")),
        *(
            StepScheduled(at_ms, StepPath(f"s{step}"), "s", 1, AgentName("x"), {"text": "x" * 100}, 500)
            for step in range(length - 2)
        ),
        ExecutionCompleted(at_ms + 1, {"answer": 42}),
    ]
    return NewEvents(execution, TenantId("bench"), 1, 0, tuple(events), reduce(evolve, events, ExecutionState()))
