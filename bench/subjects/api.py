"""The API at 100 requests a second beside a working worker: how long a GET and an asynchronous start take."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import uvloop
from rich.console import Console

from agentflow.devstack.platform import embedded_platform
from agentflow.sdk.client import Client
from bench import workloads
from bench.report import Figures, Results

HERE = Path(__file__).parent.parent
RATE = 100  # requests a second, half of them reads and half starts
SECONDS = 20
PROMISED_P95_MS = 50


def run(console: Console) -> Results:
    return {"sqlite": {f"{RATE} requests/s": uvloop.run(_measured(console))}}


async def _measured(console: Console) -> Figures:
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("measuring the API ...", style="dim")
        async with (
            embedded_platform(Path(scratch), agents_file=HERE / "agents.yaml") as running,
            Client(running.api_url, api_key=running.api_key, retries=0) as client,
        ):
            await client.push_workflow(workloads.line())
            await workloads.throughput(client, executions=20, concurrency=10)  # warm
            async with _disk(Path(scratch)) as disk:
                figures = await _paced(client)
            return {**figures, "fsync of the disk p95 ms": quantiles(disk, n=100)[94] * 1000}


@asynccontextmanager
async def _disk(folder: Path) -> AsyncIterator[list[float]]:
    """How long the disk takes to make a few bytes safe, in the same seconds: a start cannot be quicker than that.

    Where this is large somebody else writes to the disk, and so is POST's tail; GET waits for no commit.
    """
    taken: list[float] = []

    def once() -> float:
        with (folder / "beside").open("ab", buffering=0) as file:
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            return time.perf_counter() - began

    async def watch() -> None:
        while True:
            taken.append(await asyncio.to_thread(once))
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    try:
        yield taken
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _paced(client: Client) -> Figures:
    """Requests leave at their moments, whether or not earlier ones were answered: a slow answer delays nobody else."""
    known = (await client.execute("line-10", {"i": 0, "text": workloads.TEXT})).execution_id
    taken: dict[str, list[float]] = {"GET execution": [], "POST execute": [], "GET list": []}

    async def timed(kind: str, ask: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await ask()
        taken[kind].append(time.perf_counter() - began)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as requests:
        for number in range(RATE * SECONDS):
            await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
            if number % 2:
                start = {"i": number, "text": workloads.TEXT}
                requests.create_task(timed("POST execute", lambda start=start: client.execute("line-10", start)))
            elif number % 10:
                requests.create_task(timed("GET execution", lambda: client.execution(known)))
            else:
                requests.create_task(timed("GET list", lambda: client.executions(workflow="line-10", limit=20)))
    figures: Figures = {}
    for kind, times in taken.items():
        cuts = quantiles(times, n=100)
        figures[f"{kind} p50 ms"] = cuts[49] * 1000
        figures[f"{kind} p95 ms"] = cuts[94] * 1000
        figures[f"{kind} p99 ms"] = cuts[98] * 1000
    figures["worst p95 ms, of 50 promised"] = max(value for name, value in figures.items() if "p95" in name)
    return figures
