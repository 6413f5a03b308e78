"""The workloads: a straight line of no-op steps, many at a time (W1), one at a time (W2), and without any I/O."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median, quantiles

from agentflow.execution.decide import decide
from agentflow.execution.events import WorkflowRef, encode
from agentflow.execution.messages import Stamp, Start, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.sdk.client import Client
from planners.kinds import compile_workflow

STEPS = 10
TEXT = "x" * 200


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


async def _one(client: Client) -> None:
    done = await client.execute(f"line-{STEPS}", {"i": 0, "text": TEXT}, wait=True)
    if done.status != "completed" or done.output["i"] != STEPS:
        raise RuntimeError(f"wrong result: {done}")


async def throughput(client: Client, *, executions: int = 200, concurrency: int = 50) -> dict[str, float]:
    """W1: a closed loop with `concurrency` executions under way."""
    left = iter(range(executions))

    async def caller() -> None:
        for _ in left:
            await _one(client)

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(concurrency)))
    seconds = time.perf_counter() - begun
    return {"steps_per_s": executions * STEPS / seconds, "executions_per_s": executions / seconds, "seconds": seconds}


async def latency(client: Client, *, repeats: int = 30) -> dict[str, float]:
    """W2: one execution at a time, from the request to its result."""
    taken = [await _timed(lambda: _one(client)) for _ in range(repeats)]
    return {
        "ms_per_execution_p50": median(taken) * 1000,
        "ms_per_execution_p95": quantiles(taken, n=20)[-1] * 1000,
        "ms_per_step_p50": median(taken) * 1000 / STEPS,
    }


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


def pure_core(*, executions: int = 500) -> dict[str, float]:
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
