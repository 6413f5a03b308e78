"""Runs a compiled machine through the real heart, with agents that are plain functions and time that only we move."""

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

from agentflow.contracts.step import StepFault
from agentflow.execution import commands as c
from agentflow.execution import messages as m
from agentflow.execution.state import ExecutionState, next_wakeup
from planners.kinds import compile_workflow
from tests.unit.agentflow.execution.scripted import Run

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "state-machines.md"
ROUNDS_MAX = 200
Agents = dict[str, Callable[[Any], Any]]


def definition(machine: str, spec: str = "") -> str:
    head = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\nspec:\n  planner: fsm\n"
    return f"{head}{indent(spec, '  ')}  fsm:\n{indent(machine, '    ')}"


def example(heading: str) -> str:
    """The definition under a heading of the guide."""
    section = GUIDE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None, heading
    return found[1]


class Machine(Run):
    """`open` answers every step with its agent until nothing is left but what only others can end."""

    def __init__(self, text: str, input: Any = None, agents: Agents | None = None, spec: str = "") -> None:
        self.agents = agents or {}
        self.asked: list[tuple[str, Any]] = []
        self._given = input
        super().__init__(compile_workflow(text if text.startswith("apiVersion") else definition(text, spec)).program)

    def give(self, message: m.ExecutionMessage) -> Any:
        if isinstance(message, m.Start):
            message = m.Start(
                message.stamp, message.execution, message.tenant, message.workflow, self._given, message.trace
            )  # fmt: skip
        decision = super().give(message)
        self.asked += [(it.path, it.input) for it in decision.commands if isinstance(it, c.DispatchStep)]
        return decision

    def work(self) -> ExecutionState:
        for _ in range(ROUNDS_MAX):
            if not self.state.in_flight:
                return self.state
            for step in list(self.state.in_flight.values()):
                if step.path not in self.state.in_flight:
                    continue
                agent = self.agents.get(str(step.tool or step.agent), lambda given: given)
                answer = agent(step.input)
                output, fault = (None, answer) if isinstance(answer, StepFault) else (answer, None)
                self.report(step.path, output, fault, step.attempt)
        raise AssertionError("it goes on and on")

    def sleep(self) -> ExecutionState:
        """Let time pass until the next moment that matters."""
        moment = next_wakeup(self.state)
        assert moment is not None, "nothing is waiting for time to pass"
        self.time(max(self.now, moment))
        return self.work()
