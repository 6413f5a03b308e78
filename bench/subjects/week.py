"""A week of work in a minute or two: is the platform on its last day what it was on its second?

The work of a small deployment (ten steps every two minutes, so 7,200 a day) is done as fast as it goes, by the whole
platform as separate processes. Every day ends with the purge, for which all of that day is over. Then memory and
latency of the last day stand beside those of the second (the first one warms everything up), and nobody lifted a hand.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import uvloop
from rich.console import Console

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from bench import workloads
from bench.processes import cpu_s, memory_bytes, processes_of
from bench.report import Figures, Results, Workloads
from control_plane.daily_purge import in_a_process_of_its_own

HERE = Path(__file__).parent.parent
DAYS = 7
EXECUTIONS = 720  # of ten steps, a day
AT_ONCE = 10
KEPT = {"AF_RETENTION": "history=0d"}  # the day is over when its last execution is


def run(console: Console) -> Results:
    return {"sqlite": uvloop.run(measured(console, EXECUTIONS))}


async def measured(console: Console, executions: int, days: int = DAYS) -> Workloads:
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        home = Path(scratch)
        async with (
            embedded_platform(home, agents_file=HERE / "agents.yaml", extra_env=KEPT) as running,
            Client(running.api_url, api_key=running.api_key) as client,
        ):
            await client.push_workflow(workloads.line())
            lived: list[Figures] = []
            for number in range(1, days + 1):
                console.print(f"day {number} ...", style="dim")
                lived.append(await _day(client, running, executions))
                await in_a_process_of_its_own(_settings(home))
            left = (await client.executions()).items
    second, last = lived[1], lived[-1]
    grown = {f"{figure}, last day / second": last[figure] / second[figure] for figure in second}
    by_day = {f"day {number}": day for number, day in enumerate(lived, start=1)}
    return {**by_day, "the week": {**grown, "executions left": float(len(left))}}


async def _day(client: Client, running: EmbeddedPlatform, executions: int) -> Figures:
    pids = processes_of(running)
    before = cpu_s(pids)
    taken: list[float] = []

    async def one() -> None:
        begun = time.perf_counter()
        await workloads.one_line(client)
        taken.append((time.perf_counter() - begun) * 1e3)

    await workloads.closed_loop(one, executions, AT_ONCE)
    spent = {name: after - before[name] for name, after in cpu_s(pids).items()}
    cuts = quantiles(taken, n=100)
    return {
        "p50 ms": cuts[49],
        "p95 ms": cuts[94],
        "control plane CPU us a step": spent["control plane"] / executions / workloads.STEPS * 1e6,
        "control plane MB": memory_bytes(pids["control plane"]) / 1e6,
        "worker MB": memory_bytes(pids["worker"]) / 1e6,
    }


def _settings(home: Path) -> dict[str, str]:
    return inherited_environment() | KEPT | {"AF_HOME": str(home), "AF_CONFIG_FILE": os.devnull}
