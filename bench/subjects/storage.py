"""Appends to the event store, by size of batch, beside what the engine itself can do with the same rows.

The limit is the driver alone, in the same run and turn by turn: rows encoded before the clock starts, one transaction
for each batch, the same durability, a table with the same columns and the same unique key and no checks. Under
PostgreSQL it is INSERT from arrays (COPY is shown too, but PostgreSQL refuses it where row-level security applies), on
SQLite `executemany` without a thread between.
"""

import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import uvloop
from rich.console import Console

from agentflow.clock import SystemClock
from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import Event, ExecutionStarted, StepScheduled, StepSucceeded, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, UlidSource, WorkerId, WorkflowId
from agentflow.ports import NewEvents
from bench.report import Figures, Results, Workloads
from control_plane.storage.append import rows_of
from control_plane.storage.database import database
from control_plane.storage.days import make_days
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

SIZES = {1: 300, 10: 100, 100: 40, 1_000: 8}  # events in a batch, and how many batches make one turn
TURNS = 7
SHARDS = 16
TEXT = "x" * 200
TENANT = TenantId("bench")

Batch = list[NewEvents]
Write = Callable[[Batch], Awaitable[None]]

_COLUMNS = ("tenant_id", "execution_id", "version", "event_type", "event_data", "created_at_ms", "epoch")
_RAW_POSTGRES = """
CREATE TABLE raw_events (
    position bigint GENERATED ALWAYS AS IDENTITY, tenant_id text NOT NULL, execution_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL, event_type text NOT NULL, event_data json NOT NULL, created_at_ms bigint NOT NULL,
    epoch integer NOT NULL, UNIQUE (execution_id, version));
CREATE INDEX ON raw_events (position)
"""
_RAW_SQLITE = """
CREATE TABLE raw_events (
    position INTEGER PRIMARY KEY AUTOINCREMENT, tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL,
    version BIGINT NOT NULL, event_type TEXT NOT NULL, event_data TEXT NOT NULL, created_at_ms BIGINT NOT NULL,
    epoch INTEGER NOT NULL, UNIQUE (execution_id, version))
"""


def run(console: Console) -> Results:
    return uvloop.run(_run(console))


async def _run(console: Console) -> Results:
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("appending to SQLite ...", style="dim")
        results["sqlite"] = await on_sqlite(Path(scratch))
        console.print("appending to PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            results["postgresql"] = await on_postgresql(await server.create_database())
    return results


async def on_sqlite(directory: Path) -> Workloads:
    raw = sqlite3.connect(directory / "raw.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _RAW_SQLITE):
        raw.execute(statement)
    insert = f"INSERT INTO raw_events ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)"

    async def executemany(rows: list[tuple[Any, ...]]) -> None:
        raw.execute("BEGIN IMMEDIATE")
        raw.executemany(insert, rows)
        raw.execute("COMMIT")

    try:
        return await _measured(f"sqlite:///{directory}/ours.db", {"executemany": executemany})
    finally:
        raw.close()


async def on_postgresql(dsn: str) -> Workloads:
    raw = await asyncpg.connect(dsn)
    await raw.execute(_RAW_POSTGRES)
    types = ("text", "text", "bigint", "text", "json", "bigint", "integer")
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, start=1))
    insert = await raw.prepare(f"INSERT INTO raw_events ({', '.join(_COLUMNS)}) SELECT * FROM unnest({arrays})")

    async def unnest(rows: list[tuple[Any, ...]]) -> None:
        await insert.fetch(*zip(*rows, strict=True))

    async def copy(rows: list[tuple[Any, ...]]) -> None:
        await raw.copy_records_to_table("raw_events", records=rows, columns=_COLUMNS)

    try:
        return await _measured(dsn, {"copy": copy, "unnest": unnest})
    finally:
        await raw.close()


async def _measured(dsn: str, limits: dict[str, Callable[[list[tuple[Any, ...]]], Awaitable[None]]]) -> Workloads:
    async with database(dsn) as db:
        await upgrade(db)
        await make_days(db, SystemClock().now_ms())
        epochs = await SqlShardLeases(db).acquire(range(SHARDS), "bench", lease_s=600)
        store = SqlEventStore(db)

        async def ours(batch: Batch) -> None:
            await store.append(batch, epochs)

        measured: Workloads = {}
        for size, batches in SIZES.items():
            stories = {name: _stories(size) for name in ("ours", *limits)}
            await _turn(ours, stories["ours"], 10)  # warm
            taken: dict[str, list[float]] = {"ours": []}
            for _ in range(TURNS):
                taken["ours"].append(size * batches / await _turn(ours, stories["ours"], batches))
                for name, write in limits.items():
                    rows = [_raw_rows(next(stories[name]), epochs) for _ in range(batches)]
                    begun = time.perf_counter()
                    for one in rows:
                        await write(one)
                    taken.setdefault(name, []).append(size * batches / (time.perf_counter() - begun))
            measured[f"batch {size}"] = _figures(taken)
    return measured


def _figures(taken: dict[str, list[float]]) -> Figures:
    ours = median(taken.pop("ours"))
    limits = {f"{name}_appends_per_s": median(rates) for name, rates in taken.items()}
    usable = max(rate for name, rate in limits.items() if not name.startswith("copy"))
    return {"appends_per_s": ours, **limits, "of_limit_percent": 100 * ours / usable}


async def _turn(write: Write, stories: Iterator[Batch], batches: int) -> float:
    ready = [next(stories) for _ in range(batches)]
    begun = time.perf_counter()
    for batch in ready:
        await write(batch)
    return time.perf_counter() - begun


def _raw_rows(batch: Batch, epochs: dict[int, int]) -> list[tuple[Any, ...]]:
    return rows_of(batch, epochs, snapshot_every=1_000_000).events


def _stories(size: int) -> Iterator[Batch]:
    """Batches of one event for each of `size` executions, which follow each other as in real ones."""
    ids = UlidSource(SystemClock().now_ms)
    while True:
        executions = [ids.execution() for _ in range(size)]
        states = dict.fromkeys(executions, ExecutionState())
        for version in range(1, 42):
            batch = []
            for number, execution in enumerate(executions):
                event = _event(execution, version)
                after = evolve(states[execution], event)
                batch.append(NewEvents(execution, TENANT, number % SHARDS, version - 1, (event,), after))
                states[execution] = after
            yield batch


_WORKFLOW = WorkflowRef(WorkflowId("wf_bench"), "bench", "1.0.0", "digest")
_numbers = count()


def _event(execution: ExecutionId, version: int) -> Event:
    if version == 1:
        return ExecutionStarted(1, execution, TENANT, _WORKFLOW, {"text": TEXT}, TraceId("t"))
    path = StepPath(f"s{version // 2}")
    if version % 2 == 0:
        return StepScheduled(1, path, path, 1, AgentName("noop"), {"i": next(_numbers), "text": TEXT}, 60_000)
    return StepSucceeded(1, path, 1, {"i": next(_numbers), "text": TEXT}, WorkerId("wrk"), 1, 2)
