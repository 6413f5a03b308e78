"""What runs on a day: machines of every kind, grown from numbers, and plain ones that nothing but their steps ends.

A grown machine gives up on what takes too long, which hides what was lost; a steady one waits for it for ever.
"""

from functools import cache

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry, WorkflowRef
from agentflow.execution.program import Fail, Finish, Program, Remember, RunStep, StartChild, StartTimer
from agentflow.ids import AgentName, WorkflowId
from planners.kinds import compile_workflow
from tests.unit.planners.random_machines import grown

GROWN = 60  # so many that every kind of state is among them, so few that compiling them costs little
CHILD = WorkflowRef(WorkflowId("wf_child"), "steady-2", "1.0.0", "d")
AGENTS = ("undoer", "x")
_FOR_EVER_MS = 10 * 60_000


class Steady:
    """So many steps one after the other, which may take for ever; a nap before the last."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def begin(self, run):
        return (_step("s1"),)

    def advance(self, run, outcome):
        if outcome.key == "nap":
            return (_step(f"s{self._steps}"),)
        if outcome.fault is not None:
            return (Fail(StepFault("given_up", outcome.fault.message)),)
        done = int(outcome.key[1:])
        if done == self._steps:
            return (Finish(outcome.output),)
        return (StartTimer("nap", run.at_ms + 700),) if done + 1 == self._steps else (_step(f"s{done + 1}"),)


class Crowd:
    """So many steps at once; it ends with the last of them, however each ended."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def begin(self, run):
        return tuple(_step(f"c{at}") for at in range(self._steps))

    def advance(self, run, outcome):
        if len(run.memory) + 1 == self._steps:
            return (Finish(self._steps),)
        return (Remember({outcome.key: outcome.fault is None}),)


class Family:
    """Children that it waits for, for ever."""

    def __init__(self, children: int) -> None:
        self._children = children

    def begin(self, run):
        return tuple(StartChild(f"k{at}", CHILD.name, "*", {}) for at in range(self._children))

    def advance(self, run, outcome):
        if len(run.memory) + 1 == self._children:
            return (Finish(self._children),)
        return (Remember({outcome.key: outcome.fault is None}),)


def _step(name: str) -> RunStep:
    return RunStep(name, name, AgentName("x"), None, {}, _FOR_EVER_MS, Retry(20, 100, 2.0, 500))


_PLAIN = {"steady": Steady, "crowd": Crowd, "family": Family}
NAMES = (*(f"grown-{number}" for number in range(GROWN)), *("steady-4", "crowd-5", "family-2", "steady-3") * 10)


def workflow(name: str) -> WorkflowRef:
    return WorkflowRef(WorkflowId(f"wf_{name}"), name, "1.0.0", "d")


@cache
def program_named(name: str) -> Program:
    kind, _, number = name.partition("-")
    if kind in _PLAIN:
        return _PLAIN[kind](int(number))
    return compile_workflow(grown(int(number))).program
