"""A result of a gigabyte that goes from one step to the next: it passes, and the history hardly notices.

AF_BENCH_VALUE_MB makes a smaller one of it. The worker holds the value while it writes and reads it; the control plane
never does.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console

from agentflow.devstack.platform import embedded_platform
from agentflow.sdk.client import Client
from bench.report import Figures, Results

MB = int(os.environ.get("AF_BENCH_VALUE_MB", "1000"))

AGENTS = """
def make(input):
    return {"text": "x" * (input["mb"] * 1_000_000)}


def count(input):
    return {"length": len(input["text"])}
"""
AGENTS_FILE = """
apiVersion: agentflow/v1
kind: Agents
agents:
  make: {type: function, call: "large:make", concurrency: 1}
  count: {type: function, call: "large:count", concurrency: 1}
"""
WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: large, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: first
    final_states: [second]
    states:
      first: {agent: make, input: {mb: "${input.mb}"}, timeout: 10m, on_success: second}
      second: {agent: count, input: "${output}", timeout: 10m}
"""


def run(console: Console) -> Results:
    console.print(f"a result of {MB:,} MB ...", style="dim")
    return {"sqlite": {f"{MB:,} MB": asyncio.run(_run())}}


async def _run() -> Figures:
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        folder = Path(scratch)
        (folder / "large.py").write_text(AGENTS)
        (folder / "agents.yaml").write_text(AGENTS_FILE)
        async with (
            embedded_platform(folder / "home", agents_file=folder / "agents.yaml") as running,
            Client(running.api_url, api_key=running.api_key) as client,
        ):
            await client.push_workflow(WORKFLOW)
            watched = psutil.Process(running.control_plane.pid)
            before_mb = watched.memory_info().rss / 1e6
            began_s, peak_mb = time.perf_counter(), 0.0
            started = await client.execute("large", {"mb": MB})
            while (ended := await _status(client, started.execution_id)) in ("running", "queued"):
                peak_mb = max(peak_mb, watched.memory_info().rss / 1e6)
                await asyncio.sleep(0.2)
            took_s = time.perf_counter() - began_s
        if ended != "completed":
            raise RuntimeError(f"it is {ended}")
        database = next((folder / "home").rglob("*.db"))
        with sqlite3.connect(database) as opened:
            (largest,) = opened.execute("SELECT max(length(event_data)) FROM event_store").fetchone()
            (output,) = opened.execute(
                "SELECT event_data FROM event_store WHERE event_type = 'execution.completed.v1'"
            ).fetchone()
        if str(MB * 1_000_000) not in output:
            raise RuntimeError(f"the second step saw something else: {output[:200]}")
    return {
        "s": took_s,
        "largest event, bytes": largest,
        "control plane MB before": before_mb,
        "control plane MB at most": peak_mb,
    }


async def _status(client: Client, execution: str) -> str:
    listed = await client.executions(workflow="large", limit=1)
    return next(item.status for item in listed.items if item.id == execution)
