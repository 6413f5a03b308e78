"""The workloads, W1 to W6, each a coroutine that gives figures; and what a step costs without any I/O.

The same shapes and payloads as `bench.peers.harness`, so that the two can be set side by side.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from statistics import mean, median, quantiles

from agentflow.execution.decide import decide
from agentflow.execution.events import WorkflowRef, encode
from agentflow.execution.messages import Stamp, Start, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.sdk.client import Client
from bench.report import Figures
from planners.kinds import compile_workflow

STEPS = 10
LONG = 1_000
WIDTH = 100
TEXT = "x" * 200

FAN = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: fan, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: all
    final_states: [all]
    states:
      all:
        map:
          over: "${input.items}"
          as: item
          concurrency: 1000
          do: {agent: noop, input: {i: "${item}", text: "${input.text}"}}
"""

IDLE = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: idle, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: first
    final_states: [go]
    states:
      first: {agent: noop, input: {i: "${input.i}", text: "${input.text}"}, on_success: rest}
      rest: {wait: {signal: go}, timeout: 1d, on_success: go, on_error: go}
      go:
"""


def line(steps: int = STEPS) -> str:
    """A definition of `steps` no-op steps in a row, each fed by the one before."""
    states = [
        f'      s{n}: {{agent: noop, input: {{i: "${{output.i}}", text: "${{output.text}}"}}, '
        + (f"on_success: s{n + 1}}}" if n < steps - 1 else "}")
        for n in range(1, steps)
    ]
    first = '      s0: {agent: noop, input: {i: "${input.i}", text: "${input.text}"}, on_success: s1}'
    return "\n".join(
        [
            "apiVersion: agentflow/v1",
            "kind: Workflow",
            f"metadata: {{name: line-{steps}, version: 1.0.0}}",
            "spec:",
            "  planner: fsm",
            "  fsm:",
            "    initial_state: s0",
            f"    final_states: [s{steps - 1}]",
            "    states:",
            first,
            *states,
        ]
    )


async def one_line(client: Client, steps: int = STEPS) -> str:
    done = await client.execute(f"line-{steps}", {"i": 0, "text": TEXT}, wait=True)
    if done.status != "completed" or done.output["i"] != steps:
        raise RuntimeError(f"wrong result: {done}")
    return done.execution_id


async def throughput(client: Client, *, executions: int = 200, concurrency: int = 50) -> Figures:
    """W1: a closed loop with `concurrency` executions under way."""
    begun = time.perf_counter()
    await closed_loop(lambda: one_line(client), executions, concurrency)
    seconds = time.perf_counter() - begun
    return {"steps_per_s": executions * STEPS / seconds, "seconds": seconds}


async def latency(client: Client, *, repeats: int = 30) -> Figures:
    """W2: one execution at a time, from the request to its result."""
    taken = [await _timed(lambda: one_line(client)) for _ in range(repeats)]
    return {
        "ms_per_step_p50": median(taken) * 1000 / STEPS,
        "ms_per_step_p95": quantiles(taken, n=20)[-1] * 1000 / STEPS,
    }


async def fan_out(client: Client, *, repeats: int = 5) -> Figures:
    """W3: one execution with many parallel steps and a join. The first one warms up."""

    async def once() -> None:
        done = await client.execute("fan", {"items": list(range(WIDTH)), "text": TEXT}, wait=True)
        if done.status != "completed":
            raise RuntimeError(f"wrong result: {done}")

    taken = [await _timed(once) for _ in range(repeats + 1)][1:]
    return {"ms_p50": median(taken) * 1000, "ms_max": max(taken) * 1000}


async def growth(client: Client, *, repeats: int = 7) -> Figures:
    """W4: the last hundred of a thousand sequential steps against the first, by the times of their events.

    In stretches of twenty steps, the quickest quarter of them: whatever else the machine does can only add to a time,
    and it does so to a whole hundred nearly always.
    """
    first, last = [], []
    for _ in range(repeats):
        history = await client.history(await one_line(client, LONG))
        ends = [datetime.fromisoformat(event.at).timestamp() for event in history if event.type == "step.succeeded.v1"]
        first += _stretches(ends[:100])
        last += _stretches(ends[-100:])
    first_s, last_s = _quickest_quarter(first), _quickest_quarter(last)
    return {"ratio": last_s / first_s, "first_ms_a_step": first_s * 50, "last_ms_a_step": last_s * 50}


def _stretches(ends: list[float], steps: int = 20) -> list[float]:
    return [ends[at + steps] - ends[at] for at in range(0, len(ends) - steps, steps)]


def _quickest_quarter(seconds: list[float]) -> float:
    return mean(sorted(seconds)[: len(seconds) // 4])


async def start_idle(client: Client, executions: int, *, concurrency: int = 100) -> None:
    """Executions that did one step and now wait for a signal, as most open ones do at any moment."""

    async def one() -> str:
        return (await client.execute("idle", {"i": 0, "text": TEXT})).execution_id

    await closed_loop(one, executions, concurrency)


async def closed_loop(one: Callable[[], Awaitable[object]], times: int, concurrency: int) -> None:
    left = iter(range(times))

    async def caller() -> None:
        for _ in left:
            await one()

    await asyncio.gather(*(caller() for _ in range(concurrency)))


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


def pure_core(*, executions: int = 500) -> Figures:
    """Deciding and encoding alone: what a step costs before any I/O."""
    compiled = compile_workflow(line())
    workflow = WorkflowRef(WorkflowId("wf_bench"), "line", "1.0.0", compiled.digest)
    stamp, worker = Stamp(1_000, 0.5), WorkerId("wrk_bench")
    begun = time.perf_counter()
    for _ in range(executions):
        decision = decide(
            ExecutionState(),
            Start(stamp, ExecutionId("exec_b"), TenantId("default"), workflow, {"i": 0, "text": TEXT}, TraceId("t")),
            compiled.program,
        )
        while not decision.state.ended:
            for event in decision.events:
                encode(event)
            (command,) = decision.commands
            output = {"i": command.input["i"] + 1, "text": TEXT}
            report = StepReported(stamp, command.path, command.attempt, worker, 1, 2, output)
            decision = decide(decision.state, report, compiled.program)
    seconds = time.perf_counter() - begun
    steps = executions * STEPS
    return {"us_per_step": seconds / steps * 1e6, "steps_per_s": steps / seconds}
