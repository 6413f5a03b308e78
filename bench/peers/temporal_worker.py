"""Temporal's worker, in a process of its own: steps as activities, or as local ones."""

import asyncio
import os
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import harness

WITHIN = timedelta(seconds=60)


@activity.defn
async def step(payload: dict[str, Any]) -> dict[str, Any]:
    return harness.step(payload)


def one(payload: harness.Payload) -> Awaitable[harness.Payload]:
    if harness.OPTIONS["step"] == "local":
        return workflow.execute_local_activity(step, payload, start_to_close_timeout=WITHIN)
    return workflow.execute_activity(step, payload, start_to_close_timeout=WITHIN)


@workflow.defn
class Line:
    @workflow.run
    async def run(self, steps: int, payload: dict[str, Any]) -> dict[str, Any]:
        for _ in range(steps):
            payload = await one(payload)
        return payload


@workflow.defn
class Fan:
    @workflow.run
    async def run(self, width: int, payload: dict[str, Any]) -> int:
        return len(await asyncio.gather(*(one({**payload, "i": number}) for number in range(width))))


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    await Worker(client, task_queue="peers", workflows=[Line, Fan], activities=[step]).run()


if __name__ == "__main__":
    asyncio.run(main())
