"""Restate's service endpoint, in a process of its own: steps with `ctx.run`, or as calls to another service."""

from collections.abc import Awaitable
from typing import Any

import harness
import restate

worker = restate.Service("Worker")
line = restate.Workflow("Line")
fan = restate.Workflow("Fan")


@worker.handler()
async def step(_: restate.Context, payload: dict[str, Any]) -> dict[str, Any]:
    return harness.step(payload)


def one(context: restate.WorkflowContext, payload: harness.Payload) -> Awaitable[harness.Payload]:
    if harness.OPTIONS["step"] == "call":
        return context.service_call(step, arg=payload)
    return context.run_typed("step", harness.step, restate.RunOptions(), payload)


@line.main(name="run")
async def run_line(context: restate.WorkflowContext, request: dict[str, Any]) -> dict[str, Any]:
    payload = {"i": request["i"], "text": request["text"]}
    for _ in range(request["steps"]):
        payload = await one(context, payload)
    return payload


@fan.main(name="run")
async def run_fan(context: restate.WorkflowContext, request: dict[str, Any]) -> int:
    branches = [one(context, {"i": number, "text": request["text"]}) for number in range(request["width"])]
    await restate.gather(*branches)
    return len([await branch for branch in branches])


app = restate.app(services=[worker, line, fan])
