"""Temporal: its development server on a SQLite file, driver and worker as separate processes."""

import asyncio
import os
import sys
import uuid
from importlib.metadata import version
from pathlib import Path

import harness
from temporalio.client import Client


async def main() -> None:
    harness.stop_at_sigterm()
    os.environ["TEMPORAL_ADDRESS"] = address = f"127.0.0.1:{harness.free_port()}"
    serve = [
        *(str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless", "--log-level", "error"),
        *("--ip", "127.0.0.1", "--port", address.rpartition(":")[2]),
        *("--db-filename", str(harness.DATA / "temporal.sqlite")),
        # One history shard and the stock limit would pace a sequential workflow at about 18 steps a second.
        *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"),
    ]
    with harness.started(serve):
        client = await _connected(address)
        with harness.started([sys.executable, "temporal_worker.py"]):

            async def line(steps: int, start: int) -> harness.Payload:
                arguments = [steps, harness.first(start)]
                return await client.execute_workflow("Line", args=arguments, id=uuid.uuid4().hex, task_queue="peers")

            async def fan(width: int) -> int:
                return await client.execute_workflow(
                    "Fan", args=[width, harness.first()], id=uuid.uuid4().hex, task_queue="peers"
                )

            durable = "history committed to a SQLite file"
            await harness.measure(line, fan, version=version("temporalio"), durable=durable)


async def _connected(address: str) -> Client:
    for _ in range(100):
        try:
            return await Client.connect(address)
        except RuntimeError:
            await asyncio.sleep(0.2)
    raise RuntimeError("the development server did not start")


asyncio.run(main())
