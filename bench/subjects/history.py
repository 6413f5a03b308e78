"""One execution with a quarter of a million events, on the whole platform: how long, and how much memory it takes.

What it must show (UA-4): it completes, its last steps cost what its first did, and the control plane needs no more than
1.2 times the memory it needed for an execution of a thousand events.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.devstack.postgres import postgres_server
from agentflow.sdk.client import Client
from bench.report import Figures, Results

HERE = Path(__file__).parent.parent
# AF_BENCH_EVENTS makes a shorter one of it, for a machine that is in use.
EVENTS = int(os.environ.get("AF_BENCH_EVENTS", "250000"))
SMALL = 1_000
_LANES = 50  # that many steps at once, so that it ends today

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: long, version: 1.0.0}
spec:
  planner: fsm
  input: {type: object, required: [lanes, rounds]}
  fsm:
    initial_state: lanes
    final_states: [lanes]
    states:
      lanes:
        map:
          over: "${input.lanes}"
          concurrency: 50
          do:
            initial_state: rounds
            final_states: [rounds]
            states:
              rounds:
                loop:
                  max: 100000
                  for: "${input.rounds}"
                  as: round
                  do:
                    initial_state: go
                    final_states: [go]
                    states:
                      go: {agent: noop, input: {i: "${round}", text: t}, timeout: 60s}
"""


def run(console: Console) -> Results:
    return asyncio.run(_run(console))


async def _run(console: Console) -> Results:
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print(f"one execution of {EVENTS:,} events on PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            environment = {"AF_DB_DSN": await server.create_database()}
            async with (
                embedded_platform(
                    Path(scratch) / "home", agents_file=HERE / "agents.yaml", extra_env=environment
                ) as running,
                Client(running.api_url, api_key=running.api_key) as client,
            ):
                await client.push_workflow(WORKFLOW)
                small = await _one(running, client, SMALL)
                large = await _one(running, client, EVENTS)
    large["memory, times that of the small one"] = large["peak MB"] / small["peak MB"]
    return {"postgresql": {f"{SMALL:,} events": small, f"{EVENTS:,} events": large}}


async def _one(running: EmbeddedPlatform, client: Client, events: int) -> Figures:
    """As many rounds as make at least that many events: a step is scheduled, ends, and moves the program."""
    process = psutil.Process(running.control_plane.pid)
    began_s, peak = time.perf_counter(), 0
    started = await client.execute(
        "long", {"lanes": list(range(_LANES)), "rounds": list(range(events // (3 * _LANES) + 1))}
    )
    while True:
        state = await client.events(started.execution_id, after=10**9, wait_s=0)
        peak = max(peak, process.memory_info().rss)
        if state.ended or (await client.execution(started.execution_id)).status != "running":
            break
        await asyncio.sleep(0.2)
    took_s = time.perf_counter() - began_s
    ended = await client.execution(started.execution_id)
    if ended.status != "completed":
        raise RuntimeError(f"it is {ended.status}: {ended.error}")
    return {"events": ended.version, "s": took_s, "events/s": ended.version / took_s, "peak MB": peak / 1e6}
