"""A step costs the same however large its workflow is and however long it has lived. Counted in calls, not in time."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentflow.execution.decide import decide
from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import Stamp, Start, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from bench.workloads import line
from planners.kinds import compile_workflow
from tests.unit.planners.behavior_tree.play import definition as tree
from tests.unit.planners.machines import definition as machine

REF = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "digest")
LOOP = """
initial_state: a
final_states: [b]
states:
  a: {agent: x, max_visits: 5000, transitions: [{condition: 'output.n > 0', to: a}, {to: b}]}
  b:
"""
MAP = """
initial_state: m
final_states: [m]
states:
  m: {map: {over: '${input.items}', concurrency: 3, do: {agent: x, input: '${item}'}}}
"""


def costs(text: str, steps: int, items: int = 0) -> list[int]:
    """The calls of each of the first decisions about a step."""
    program = compile_workflow(text).program
    start = Start(
        Stamp(1_000), ExecutionId("e"), TenantId("t"), REF, {"i": 0, "text": "", "items": [1] * items}, TraceId("x")
    )  # fmt: skip
    decision = decide(ExecutionState(), start, program)
    counted, waiting = [], [command.path for command in decision.commands if hasattr(command, "path")]
    for _ in range(steps):
        path = waiting.pop(0)
        report = StepReported(Stamp(1_000), path, 1, WorkerId("w"), 0, 0, {"i": 1, "n": 1, "text": ""})
        state = decision.state
        calls, decision = calls_of(lambda: decide(state, report, program))  # noqa: B023 - called at once
        counted.append(calls)
        waiting += [command.path for command in decision.commands]
    return counted


def calls_of(work: Callable[[], Any]) -> tuple[int, Any]:
    count = 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return count, result


def wide(steps: int) -> str:
    return tree("parallel: [" + ", ".join(f"{{action: {{agent: a{at}}}}}" for at in range(steps)) + "]")


def test_in_a_machine_of_a_thousand_states_as_in_one_of_ten():
    assert costs(line(1_000), 900)[899] == costs(line(10), 6)[5]


@pytest.mark.parametrize(
    "text", [pytest.param(machine(LOOP), id="loop"), pytest.param(machine(MAP), id="map")]
)  # fmt: skip
def test_after_thousands_of_steps_as_after_a_few(text):
    taken = costs(text, 2_000, items=3_000)

    assert set(taken[1_900:]) <= set(taken[10:200])


def test_beside_two_hundred_open_steps_nearly_as_beside_ten():
    """A few calls more: its place among the moments that are due has to be found."""
    assert costs(wide(200), 100)[99] <= 1.1 * costs(wide(10), 6)[5]
