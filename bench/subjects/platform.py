"""The whole platform as separate processes, W1 to W6 on SQLite and on PostgreSQL, beside the pure core alone."""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
import uvloop
from rich.console import Console

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.devstack.postgres import postgres_server
from agentflow.sdk.client import Client
from bench import workloads
from bench.processes import cpu_s, memory_bytes, processes_of
from bench.report import Figures, Results, Workloads

HERE = Path(__file__).parent.parent
ROUNDS = 3  # of W1, which takes half a second; the middle one counts
IDLE = 1_000
IDLE_AT_START = 10_000


def run(console: Console) -> Results:
    return uvloop.run(_run(console))


async def _run(console: Console) -> Results:
    results: Results = {"core": {"pure core": workloads.pure_core()}}
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("measuring on SQLite ...", style="dim")
        results["sqlite"] = await _measured(Path(scratch) / "sqlite", {}, None)
        console.print("measuring on PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            environment = {"AF_DB_DSN": await server.create_database()}
            results["postgresql"] = await _measured(Path(scratch) / "postgresql", environment, server.process.pid)
    return results


async def _measured(directory: Path, environment: dict[str, str], database: int | None) -> Workloads:
    async with (
        embedded_platform(directory, agents_file=HERE / "agents.yaml", extra_env=environment) as running,
        Client(running.api_url, api_key=running.api_key) as client,
    ):
        for definition in (workloads.line(), workloads.line(workloads.LONG), workloads.FAN, workloads.IDLE):
            await client.push_workflow(definition)
        await workloads.throughput(client, executions=20, concurrency=10)  # warm
        return {
            "W1": await _throughput(client, processes_of(running, database=database)),
            "W2": await workloads.latency(client),
            "W3": await workloads.fan_out(client),
            "W4": await workloads.growth(client),
            "W5": await _memory(client, running),
            "W6": await _start_up(client, running),
        }


async def _throughput(client: Client, pids: dict[str, int]) -> Figures:
    """W1, and what each process spent on a step: on few cores the sum of it is the limit."""
    rounds = []
    for _ in range(ROUNDS):
        before = cpu_s(pids)
        figures = await workloads.throughput(client)
        steps = figures["steps_per_s"] * figures["seconds"]
        spent = {name: (after - before[name]) / steps * 1e6 for name, after in cpu_s(pids).items()}
        figures["driver_cpu"] = spent["driver"] * steps / 1e6 / figures["seconds"]
        rounds.append(figures | {f"cpu_us_per_step, {name}": us for name, us in spent.items()})
    return sorted(rounds, key=lambda figures: figures["steps_per_s"])[ROUNDS // 2]


async def _memory(client: Client, running: EmbeddedPlatform) -> Figures:
    """W5: what an open execution that waits for something takes of the control plane's memory."""
    await workloads.start_idle(client, IDLE)  # what grows once, grows now
    before = await _settled_memory(running)
    await workloads.start_idle(client, IDLE)
    return {"kb_each": (await _settled_memory(running) - before) / IDLE / 1024}


async def _settled_memory(running: EmbeddedPlatform) -> int:
    await asyncio.sleep(2)
    return memory_bytes(running.control_plane.pid)


async def _start_up(client: Client, running: EmbeddedPlatform) -> Figures:
    """W6: from a control plane's first moment to the line that says it is ready, with many executions to take up."""
    await workloads.start_idle(client, IDLE_AT_START - 2 * IDLE)
    await asyncio.sleep(2)
    stopped = running.control_plane.pid
    os.kill(stopped, signal.SIGTERM)
    while running.control_plane.pid == stopped:  # noqa: ASYNC110 - supervision tells nobody
        await asyncio.sleep(0.01)
    ready_s = time.time() - psutil.Process(running.control_plane.pid).create_time()
    return {"ready_s": ready_s, "executions": float(IDLE_AT_START)}
