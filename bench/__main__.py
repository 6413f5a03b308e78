"""`make bench`: run every workload on SQLite and on PostgreSQL, print a table, save bench/results/latest.json."""

import asyncio
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agentflow.devstack.platform import embedded_platform
from agentflow.devstack.postgres import postgres_server
from agentflow.sdk.client import Client
from bench import workloads

HERE = Path(__file__).parent
Results = dict[str, dict[str, float]]


async def measure(directory: Path, dsn: str | None) -> Results:
    """All of the platform as separate processes, on one database."""
    environment = {} if dsn is None else {"AF_DB_DSN": dsn}
    async with (
        embedded_platform(directory, agents_file=HERE / "agents.yaml", extra_env=environment) as running,
        Client(running.api_url) as client,
    ):
        await client.push_workflow(workloads.line())
        await workloads.throughput(client, executions=20, concurrency=10)  # warm
        return {"W1 throughput": await workloads.throughput(client), "W2 latency": await workloads.latency(client)}


async def main() -> None:
    console = Console()
    results: dict[str, Results] = {"core": {"pure core": workloads.pure_core()}}
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("measuring on SQLite ...", style="dim")
        results["sqlite"] = await measure(Path(scratch) / "sqlite", None)
        console.print("measuring on PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            results["postgresql"] = await measure(Path(scratch) / "postgresql", await server.create_database())
    console.print(table(results))
    saved = save(results)
    console.print(f"saved {saved.relative_to(Path.cwd()) if saved.is_relative_to(Path.cwd()) else saved}")


def table(results: dict[str, Results]) -> Table:
    shown = Table(title=f"{workloads.STEPS}-step executions of no-op steps", title_justify="left")
    for column in ("on", "workload", "figure", "value"):
        shown.add_column(column, justify="right" if column == "value" else "left")
    for place, measured in results.items():
        for workload, figures in measured.items():
            for figure, value in figures.items():
                shown.add_row(place, workload, figure, f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
        shown.add_section()
    return shown


def save(results: dict[str, Results]) -> Path:
    report: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
        "results": results,
    }
    path = HERE / "results" / "latest.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
