"""Planners without any I/O: a transition, a decision, a compilation, and whether history or size slows a step down.

Each planner is a place of its own; `MEASURES` is where another one adds its workloads.

What a step costs does not depend on the number of states, but what a processor has at hand does: ten states stay in
its caches from life to life, a thousand do not. So a life of 1,000 states is also compared with a hundred machines of
ten states that live in turn, whose compiled states take as much memory. What is left between those two is what
the maps of a larger state cost (`agentflow.execution.frozen_map`).
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from agentflow.execution.decide import Decision, decide
from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import Stamp, Start, StepReported
from agentflow.execution.program import Program, RunView, StepOutcome
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from bench.report import Figures, Results
from bench.workloads import line
from planners.kinds import compile_workflow

REF = WorkflowRef(WorkflowId("wf_bench"), "bench", "1.0.0", "d" * 64)
STAMP = Stamp(1_000, 0.5)
HEAD = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: bench, version: 1.0.0}\nspec:\n  planner: fsm\n"


def run(console: Console) -> Results:
    results: Results = {}
    for place, measures in MEASURES.items():
        console.print(f"measuring {place} ...", style="dim")
        with without_collections():
            results[place] = {name: measure() for name, measure in measures.items()}
    return results


@contextmanager
def without_collections() -> Iterator[None]:
    """The collector's pauses are the process's, not the planner's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _microseconds(work: Callable[[], Any], repeats: int = 2_000) -> Figures:
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return {"us_p50": median(taken) * 1e6, "us_p99": sorted(taken)[int(repeats * 0.99)] * 1e6}


def _started(program: Program, given: Any) -> Decision:
    start = Start(STAMP, ExecutionId("exec_b"), TenantId("default"), REF, given, TraceId("t"))
    return decide(ExecutionState(), start, program)


def _report(path: StepPath, output: Any) -> StepReported:
    return StepReported(STAMP, path, 1, WorkerId("wrk_b"), 1, 2, output)


def _lived(program: Program, given: Any, output: Any) -> list[float]:
    """Seconds of each decision from the start to the end, one step at a time."""
    decision, taken = _started(program, given), []
    waiting = [command.path for command in decision.commands if hasattr(command, "path")]
    while not decision.state.ended:
        report = _report(waiting.pop(0), output)
        begun = time.perf_counter()
        decision = decide(decision.state, report, program)
        taken.append(time.perf_counter() - begun)
        waiting += [command.path for command in decision.commands]
    return taken


def _by_tenths(taken: list[float]) -> Figures:
    tenth = max(1, len(taken) // 10)
    first, last = median(taken[:tenth]) * 1e6, median(taken[-tenth:]) * 1e6
    return {"us_p50_first_tenth": first, "us_p50_last_tenth": last, "last_over_first": last / first, "s": sum(taken)}


def fsm_transition() -> Figures:
    """Asking the program alone: the outcome of a step in, the next step out."""
    program = compile_workflow(line(100)).program
    output = {"i": 1, "text": "x" * 200}
    view = RunView({"i": 0, "text": ""}, {"s49": output}, REF, {}, {}, 1_000, 0.5)
    outcome = StepOutcome("s50", "s50", output)
    return _microseconds(lambda: program.advance(view, outcome))


def fsm_condition() -> Figures:
    """The same, when three CEL conditions must be asked before one holds."""
    ways = "".join(f"{{condition: 'output.n == {n}', to: b}}, " for n in range(3))
    states = f"a: {{agent: x, transitions: [{ways}{{to: c}}]}}\n      b: {{agent: x}}\n      c: {{agent: x}}\n"
    text = f"{HEAD}  fsm:\n    initial_state: a\n    final_states: [b, c]\n    states:\n      {states}"
    program = compile_workflow(text).program
    view = RunView(None, {}, REF, {}, {}, 1_000, 0.5)
    return _microseconds(lambda: program.advance(view, StepOutcome("a", "a", {"n": 9})))


def fsm_decide() -> Figures:
    """A whole decision of a 100-state machine, fifty steps into its life."""
    program = compile_workflow(line(100)).program
    output = {"i": 1, "text": "x" * 200}
    decision = _started(program, {"i": 0, "text": ""})
    for number in range(50):
        decision = decide(decision.state, _report(StepPath(f"s{number}"), output), program)
    report = _report(StepPath("s50"), output)
    return _microseconds(lambda: decide(decision.state, report, program))


def fsm_compile(states: int = 1_000) -> Figures:
    text = line(states)
    taken, worked = [], []
    for _ in range(5):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        compile_workflow(text)
        taken.append(time.perf_counter() - begun)
        worked.append(time.process_time() - begun_cpu)
    return {"ms_p50": median(taken) * 1_000, "cpu_ms_p50": median(worked) * 1_000}


def fsm_by_size(steps: int = 24_000, rounds: int = 12) -> Figures:
    """Machines of several sizes live in turn, as many steps of each, so that what disturbs one disturbs all.

    Of a step's times the lower quartile: whatever else runs on the machine makes the others longer, and those of larger
    machines more, because it takes their memory out of the processor's caches.
    """
    shapes = ((10, 1), (100, 1), (1_000, 1), (2_000, 1), (10, 100))
    programs = {shape: [compile_workflow(line(shape[0])).program for _ in range(shape[1])] for shape in shapes}
    taken: dict[tuple[int, int], list[float]] = {shape: [] for shape in shapes}
    for done in range(1, rounds + 1):
        for shape in shapes:
            while len(taken[shape]) < steps * done / rounds:
                for program in programs[shape]:
                    taken[shape] += _lived(program, {"i": 0, "text": ""}, {"i": 1, "text": ""})
    us = {shape: quantiles(times, n=4)[0] * 1e6 for shape, times in taken.items()}
    return {
        **{f"us_a_step_of_{states}": us[states, 1] for states in (10, 100, 1_000, 2_000)},
        "us_a_step_of_100_times_10": us[10, 100],
        "1000_over_10": us[1_000, 1] / us[10, 1],
        "2000_over_1000": us[2_000, 1] / us[1_000, 1],
        "1000_over_100_times_10": us[1_000, 1] / us[10, 100],
    }


def fsm_long_life(steps: int = 10_000) -> Figures:
    """One state that is entered again and again: what a step costs after thousands of others."""
    ways = "[{condition: 'output.n > 0', to: a}, {to: b}]"
    text = (
        f"{HEAD}  fsm:\n    initial_state: a\n    final_states: [b]\n    states:\n"
        f"      a: {{agent: x, max_visits: {steps + 10}, transitions: {ways}}}\n      b:\n"
    )
    program = compile_workflow(text).program
    decision, taken = _started(program, None), []
    for number in range(steps):
        (command,) = decision.commands
        report = _report(command.path, {"n": 1 if number < steps - 1 else 0})
        begun = time.perf_counter()
        decision = decide(decision.state, report, program)
        taken.append(time.perf_counter() - begun)
    return _by_tenths(taken)


def fsm_map(concurrency: int) -> Callable[[], Figures]:
    def measured() -> Figures:
        text = (
            f"{HEAD}  fsm:\n    initial_state: m\n    final_states: [m]\n    states:\n"
            f"      m: {{map: {{over: '${{input}}', concurrency: {concurrency}, "
            "do: {agent: x, input: '${item}'}}}\n"
        )
        taken = _lived(compile_workflow(text).program, list(range(10_000)), {"ok": True})
        return _by_tenths(taken[:-1]) | {"ms_last_decision": taken[-1] * 1_000}

    return measured


MEASURES: dict[str, dict[str, Callable[[], Figures]]] = {
    "fsm": {
        "transition": fsm_transition,
        "transition with 3 conditions": fsm_condition,
        "decide, 100 states": fsm_decide,
        "compile, 1,000 states": fsm_compile,
        "lives by number of states": fsm_by_size,
        "10,000 steps one after the other": fsm_long_life,
        "10,000 items, 10 at a time": fsm_map(10),
        "10,000 items, 1,000 at a time": fsm_map(1_000),
    },
}
