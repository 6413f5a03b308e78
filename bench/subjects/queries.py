"""What people and dashboards ask, with 10 million events of 30 days and 100,000 parked executions (PostgreSQL).

Each question is asked with other parameters every time, through the repositories that the API uses. The bound is 100 ms
at the 95th percentile.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import reduce
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console

from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import ExecutionStarted, TaskOpened, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkflowId, encode_ulid
from agentflow.ports import NewEvents
from bench.report import Results, Workloads
from bench.subjects.retention import BATCH, DAY_MS, DAYS, NOW_MS, PER_RUN, one, settled
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace
from control_plane.storage.database import Database, database
from control_plane.storage.days import make_days
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.live import SqlLiveEvents
from control_plane.storage.migrate import upgrade
from control_plane.storage.plans import SqlPlans
from control_plane.storage.tasks import SqlTasks

EVENTS = 10_000_000
PARKED = 100_000
TIMES = 100
TENANT = TenantId("bench")

Ask = Callable[[], Awaitable[Any]]


def run(console: Console) -> Results:
    return {"postgresql": asyncio.run(measured(console, EVENTS, PARKED))}


async def measured(console: Console, events: int, parked: int) -> Workloads:
    with tempfile.TemporaryDirectory(prefix="agentflow-") as folder:
        async with postgres_server(Path(folder)) as server, database(dsn := await server.create_database()) as db:
            await upgrade(db)
            await make_days(db, NOW_MS - DAYS * DAY_MS, ahead=DAYS + 1)
            store = SqlEventStore(db)
            epochs = dict(await SqlShardLeases(db).acquire(range(4), "bench", lease_s=24 * 3600))
            console.print(f"writing {events:,} events and {parked:,} parked executions ...", style="dim")
            runs = events // PER_RUN
            for first in range(0, runs, BATCH):
                batch = [one(number, DAYS * number / runs) for number in range(first, first + BATCH)]
                await store.append(batch, epochs)
            for first in range(0, parked, 500):
                batch = [waiting(number, DAYS * number / parked) for number in range(first, min(first + 500, parked))]
                await store.append(batch, epochs)
            await settled(dsn)
            return {name: await _asked(ask) for name, ask in questions(db, store, runs, parked).items()}


async def _asked(ask: Ask) -> dict[str, float]:
    taken = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - begun) * 1e3)
    cuts = quantiles(taken, n=100)
    return {"p50 ms": cuts[49], "p95 ms": cuts[94]}


def questions(db: Database, store: SqlEventStore, runs: int, parked: int) -> dict[str, Ask]:
    chance = random.Random(7)
    listed, live = SqlExecutions(db), SqlLiveEvents(db)
    shards = cycle(range(4))

    def ended() -> ExecutionId:
        number = chance.randrange(runs)
        return one(number, DAYS * number / runs).execution

    def still_open() -> ExecutionId:
        number = chance.randrange(parked)
        return waiting(number, DAYS * number / parked).execution

    def place() -> ExecutionPlace:
        return ExecutionPlace(NOW_MS - chance.randrange(DAYS * DAY_MS), "exec_")

    def day() -> ExecutionFilter:
        at_ms = place().started_at_ms
        return ExecutionFilter(started_from_ms=at_ms, started_before_ms=at_ms + DAY_MS)

    async def feed() -> None:
        await live.page(after=max(await live.newest() - chance.randrange(10_000), 0), limit=500)

    return {
        "newest executions": lambda: listed.page(TENANT, limit=50),
        "a page far back": lambda: listed.page(TENANT, after=place(), limit=50),
        "running executions": lambda: listed.page(TENANT, ExecutionFilter(statuses=("running",)), limit=50),
        "failed executions": lambda: listed.page(TENANT, ExecutionFilter(statuses=("failed",)), limit=50),
        "executions of a workflow": lambda: listed.page(TENANT, ExecutionFilter(workflow="parked"), limit=50),
        "executions of a day": lambda: listed.page(
            TENANT,
            ExecutionFilter(started_from_ms=(at := place().started_at_ms), started_before_ms=at + DAY_MS),
            limit=50,
        ),
        "count of all": lambda: listed.count(TENANT),
        "count of running": lambda: listed.count(TENANT, ExecutionFilter(statuses=("running",))),
        "one execution": lambda: listed.get(TENANT, ended()),
        "its events": lambda: store.read(TENANT, ended(), limit=100),
        "its state": lambda: store.load(still_open()),
        "its plan": lambda: SqlPlans(db).steps(TENANT, ended(), limit=50),
        "tasks for people": lambda: SqlTasks(db).list_open(TENANT, limit=50),
        "count of tasks": lambda: SqlTasks(db).count_open(TENANT),
        "the feed from somewhere": feed,
        "what is open in a shard": lambda: store.open_executions([next(shards)]),
    }


def waiting(number: int, day: float) -> NewEvents:
    """One that began on that day and waits for a person ever since."""
    at_ms = NOW_MS - int((DAYS - day) * DAY_MS)
    execution = ExecutionId(f"exec_{encode_ulid((at_ms << 80) | 10**15 + number)}")
    workflow = WorkflowRef(WorkflowId("wf_2"), "parked", "1.0.0", "d1")
    events = (
        ExecutionStarted(at_ms, execution, TENANT, workflow, {"n": number}, TraceId("t")),
        TaskOpened(at_ms + 1, StepPath("approve"), {"title": f"May {number} come in?"}),
    )
    return NewEvents(execution, TENANT, number % 4, 0, events, reduce(evolve, events, ExecutionState()))
