"""Behaviour trees of 1,000 nodes: a tick, a whole decision with its events, compiling. No I/O.

The target is a tick within 1 ms, also for the one that joins what 999 steps gave. `deep` walks through sequences in
sequences, `wide` is one parallel with all its steps open, `looking` has a hundred conditions to look at again on every
tick. A tick is timed by the processor's clock: one in a thousand is interrupted by the system for several times as
long as it takes.
"""

import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import msgspec
from rich.console import Console

from agentflow.execution.decide import decide
from agentflow.execution.events import WorkflowRef, encode
from agentflow.execution.messages import Stamp, Start, StepReported, TimeReached
from agentflow.execution.program import Outcome, RunView
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from bench.report import Figures, Results
from bench.subjects.planners import without_collections
from planners.behavior_tree.program import TreeProgram, walk
from planners.kinds import compile_workflow

NODES = 1_000
REF = WorkflowRef(WorkflowId("wf_bench"), "tree", "1.0.0", "digest")


def run(console: Console) -> Results:
    shapes: dict[str, Callable[[], Any]] = {"deep": deep, "wide": wide, "looking": looking}
    results: Results = {}
    for name, shape in shapes.items():
        console.print(f"measuring a {name} tree ...", style="dim")
        results[name] = {"compile": {}, "tick": {}}
        begun = time.perf_counter()
        program = compiled(shape())
        results[name]["compile"] = {"ms": (time.perf_counter() - begun) * 1e3, "nodes": float(_size(program))}
        with without_collections():
            results[name]["tick"] = ticks(program)
    return results


def compiled(tree: Any) -> TreeProgram:
    definition = {
        "apiVersion": "agentflow/v1",
        "kind": "Workflow",
        "metadata": {"name": "tree", "version": "1.0.0"},
        "spec": {"planner": "behavior_tree", "tree": tree},
    }
    program = compile_workflow(msgspec.json.encode(definition).decode()).program
    if not isinstance(program, TreeProgram):
        raise TypeError(program)
    return program


def action(number: int) -> dict[str, Any]:
    return {"action": {"name": f"s{number}", "agent": "noop", "input": {"n": "${input.n}"}}}


def deep() -> Any:
    """Sequences of selectors of a condition that fails and a step, ten levels down."""
    count = (NODES - 10) // 5
    pairs = [{"selector": [{"condition": "input.n < 0"}, {"invert": {"invert": action(at)}}]} for at in range(count)]
    tree: Any = {"sequence": pairs}
    for _ in range(9):
        tree = {"force_success": {"do": tree}}
    return tree


def wide() -> Any:
    return {"parallel": [action(at) for at in range(NODES - 1)]}


def looking() -> Any:
    """A selector without memory that looks at a hundred conditions again before it goes on with the last child."""
    checks = [{"sequence": [{"condition": f"input.n > {at + 1}"}, action(at)]} for at in range(100)]
    steps = {"sequence": [action(at) for at in range(100, NODES - 202)]}
    return {"selector": {"memory": False, "children": [*checks, steps]}}


def ticks(program: TreeProgram) -> Figures:
    """One execution from start to end; every tick is timed by itself, and every decision with its events."""
    timed = _Timed(program)
    stamp, worker = Stamp(1_000, 0.5), WorkerId("wrk_bench")
    start = Start(stamp, ExecutionId("exec_b"), TenantId("default"), REF, {"n": 1}, TraceId("t"), None)
    decisions = []
    state: ExecutionState = ExecutionState()
    message: Any = start
    while not state.ended:
        begun = time.perf_counter()
        decision = decide(state, message, timed)
        for event in decision.events:
            encode(event)
        decisions.append(time.perf_counter() - begun)
        state = decision.state
        # Slices first: a wide tree is started over several ticks.
        flight = next(iter(state.in_flight.values())) if state.in_flight and not state.timers else None
        message = TimeReached(stamp)
        if flight is not None:
            message = StepReported(stamp, flight.path, flight.attempt, worker, 1, 2, {"n": 1})
    return {
        "ticks": float(len(timed.taken)),
        "tick_us_p50": median(timed.taken) * 1e6,
        "tick_us_p99": quantiles(timed.taken, n=100)[-1] * 1e6,
        "tick_us_max": max(timed.taken) * 1e6,
        "decide_us_p50": median(decisions) * 1e6,
    }


class _Timed:
    """The program, with a stop watch."""

    def __init__(self, program: TreeProgram) -> None:
        self._program = program
        self.taken: list[float] = []

    def begin(self, run: RunView) -> Any:
        return self._measured(lambda: self._program.begin(run))

    def advance(self, run: RunView, outcome: Outcome) -> Any:
        return self._measured(lambda: self._program.advance(run, outcome))

    def _measured(self, tick: Callable[[], Any]) -> Any:
        begun = time.thread_time()
        intents = tick()
        self.taken.append(time.thread_time() - begun)
        return intents


def _size(program: TreeProgram) -> int:
    return sum(1 for _ in walk(program.root))
