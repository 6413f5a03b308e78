"""What people and dashboards ask, with 10 million events of 30 days and 100,000 parked executions (PostgreSQL).

Each question is asked with other parameters every time, through the repositories that the API uses. The bound is 100 ms
at the 95th percentile.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console

from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.devstack.postgres import postgres_server
from agentflow.ids import ExecutionId
from bench.month import DAY_MS, DAYS, SHARDS, TENANT, Month
from bench.report import Results, Workloads
from control_plane.live.feed import Topic
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.live import SqlLiveEvents
from control_plane.storage.plans import SqlPlans
from control_plane.storage.storage_counts import StorageCounts
from control_plane.storage.tasks import SqlTasks
from control_plane.storage.tenants import SqlTenants

EVENTS = 10_000_000
PARKED = 100_000
TIMES = 100

Ask = Callable[[], Awaitable[Any]]


def run(console: Console) -> Results:
    return {"postgresql": asyncio.run(measured(console, EVENTS, PARKED))}


async def measured(console: Console, events: int, parked: int) -> Workloads:
    with tempfile.TemporaryDirectory(prefix="agentflow-") as folder:
        async with postgres_server(Path(folder)) as server, database(dsn := await server.create_database()) as db:
            console.print(f"writing {events:,} events and {parked:,} parked executions ...", style="dim")
            month = Month(SystemClock().now_ms(), events=events, parked=parked)
            await month.write(db, dsn)
            artifacts = await open_artifacts(f"file://{folder}/artifacts")
            await StorageCounts(db, artifacts, SystemClock()).count()
            return {name: await _asked(ask) for name, ask in questions(db, month).items()}


async def _asked(ask: Ask) -> dict[str, float]:
    taken = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - begun) * 1e3)
    cuts = quantiles(taken, n=100)
    return {"p50 ms": cuts[49], "p95 ms": cuts[94]}


def questions(db: Database, month: Month) -> dict[str, Ask]:
    chance = random.Random(7)
    listed, live, store = SqlExecutions(db), SqlLiveEvents(db), SqlEventStore(db)
    shards = cycle(range(SHARDS))

    def ended() -> ExecutionId:
        return month.ended_run(chance.randrange(month.ended)).execution

    def still_open() -> ExecutionId:
        return month.parked_run(chance.randrange(month.parked)).execution

    def place() -> ExecutionPlace:
        return ExecutionPlace(month.now_ms - chance.randrange(DAYS * DAY_MS), "exec_")

    def day() -> ExecutionFilter:
        at_ms = place().started_at_ms
        return ExecutionFilter(started_from_ms=at_ms, started_before_ms=at_ms + DAY_MS)

    async def feed(topic: Topic | None = None) -> None:
        await live.page(after=chance.randrange(await live.newest()), limit=500, topic=topic)

    async def everything_open() -> None:
        async for _ in store.open_executions([next(shards)]):
            pass

    return {
        "newest executions": lambda: listed.page(TENANT, limit=50),
        "a page far back": lambda: listed.page(TENANT, after=place(), limit=50),
        "running executions": lambda: listed.page(TENANT, ExecutionFilter(statuses=("running",)), limit=50),
        "failed executions": lambda: listed.page(TENANT, ExecutionFilter(statuses=("failed",)), limit=50),
        "executions of a workflow": lambda: listed.page(TENANT, ExecutionFilter(workflow="parked"), limit=50),
        "executions of a day": lambda: listed.page(TENANT, day(), limit=50),
        "count of all": lambda: listed.count(TENANT),
        "count of running": lambda: listed.count(TENANT, ExecutionFilter(statuses=("running",))),
        "one execution": lambda: listed.get(TENANT, ended()),
        "its events": lambda: store.read(TENANT, ended(), limit=100),
        "its state": lambda: store.load(still_open()),
        "its plan": lambda: SqlPlans(db).steps(TENANT, ended(), limit=50),
        "tasks for people": lambda: SqlTasks(db).list_open(TENANT, limit=50),
        "count of tasks": lambda: SqlTasks(db).count_open(TENANT),
        "the feed from anywhere": feed,
        "the feed of a tenant": lambda: feed(Topic(TENANT)),
        "the feed of a workflow": lambda: feed(Topic(TENANT, "parked")),
        "what is open in a shard, a page": lambda: anext(store.open_executions([next(shards)])),
        "all that is open in a shard, 50 pages": everything_open,
        "what a tenant stores": lambda: SqlTenants(db).storage_bytes(TENANT),
    }
