"""The whole platform as separate processes, on SQLite and on PostgreSQL, beside the pure core alone."""

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console

from agentflow.devstack.platform import embedded_platform
from agentflow.devstack.postgres import postgres_server
from agentflow.sdk.client import Client
from bench import workloads
from bench.report import Results, Workloads

HERE = Path(__file__).parent.parent


def run(console: Console) -> Results:
    return asyncio.run(_run(console))


async def _run(console: Console) -> Results:
    results: Results = {"core": {"pure core": workloads.pure_core()}}
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("measuring on SQLite ...", style="dim")
        results["sqlite"] = await _measured(Path(scratch) / "sqlite", None)
        console.print("measuring on PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            results["postgresql"] = await _measured(Path(scratch) / "postgresql", await server.create_database())
    return results


async def _measured(directory: Path, dsn: str | None) -> Workloads:
    environment = {} if dsn is None else {"AF_DB_DSN": dsn}
    async with (
        embedded_platform(directory, agents_file=HERE / "agents.yaml", extra_env=environment) as running,
        Client(running.api_url, api_key=running.api_key) as client,
    ):
        await client.push_workflow(workloads.line())
        await workloads.throughput(client, executions=20, concurrency=10)  # warm
        return {"W1 throughput": await workloads.throughput(client), "W2 latency": await workloads.latency(client)}
