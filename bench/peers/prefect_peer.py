"""Prefect 3: its API server on SQLite, an asynchronous flow that calls tasks in this process."""

import asyncio
import os
import sys
from importlib.metadata import version
from pathlib import Path

import harness

harness.stop_at_sigterm()
port = harness.free_port()
os.environ |= {
    "PREFECT_HOME": str(harness.DATA / "prefect"),
    "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}

from prefect import flow, task  # noqa: E402 - it reads the environment when it is imported
from prefect.cache_policies import NO_CACHE  # noqa: E402


@task(cache_policy=NO_CACHE)
async def step(payload: harness.Payload) -> harness.Payload:
    return harness.step(payload)


@flow
async def line_of(steps: int, payload: harness.Payload) -> harness.Payload:
    for _ in range(steps):
        payload = await step(payload)
    return payload


@flow
async def fan_of(width: int, payload: harness.Payload) -> int:
    return len(await asyncio.gather(*(step({**payload, "i": number}) for number in range(width))))


async def main() -> None:
    prefect = str(Path(sys.executable).with_name("prefect"))
    with harness.started([prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]):
        harness.wait_for(os.environ["PREFECT_API_URL"] + "/health")

        async def line(steps: int, start: int) -> harness.Payload:
            return await line_of(steps, harness.first(start))

        async def fan(width: int) -> int:
            return await fan_of(width, harness.first())

        durable = "states in SQLite through its API; results of tasks are not kept (its default)"
        await harness.measure(line, fan, version=version("prefect"), durable=durable)


asyncio.run(main())
