"""The compiled state machine: answers `agentflow.execution.decide` through the `Program` protocol.

An outcome's key is the place in the machine that it belongs to (`review/2/lint`), so finding that place is all that
is needed to go on; how, is in `walk`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agentflow.contracts.step import StepFault
from agentflow.execution.program import (
    ChildOutcome,
    Fail,
    Intents,
    Outcome,
    RunView,
    SignalReceived,
    StepOutcome,
    TaskAnswered,
    TimerFired,
)
from agentflow.workflow.model import Fsm
from planners.fsm import undo
from planners.fsm.places import kind_at, sets_variable, standing
from planners.fsm.plan import machine_plan
from planners.fsm.table import Frame, Machine
from planners.fsm.walk import Walk
from planners.plan import Plan


class FsmProgram:
    def __init__(self, machine: Machine, vars: Mapping[str, Any], written: Fsm) -> None:
        """`written` is what the machine was compiled from; its plan is made from that, when it is asked for."""
        self._top = Frame(machine)
        self._vars = dict(vars)
        self._written = written

    def plan(self) -> Plan:
        return machine_plan(self._written)

    # What a run that another version began may be moved by (`agentflow.execution.moving`).

    def standing(self, memory: Mapping[str, Any]) -> Iterator[str]:
        return standing(memory)

    def kind_at(self, place: str) -> str | None:
        return kind_at(self._top.machine, place)

    def variables(self) -> Mapping[str, Any]:
        return self._vars

    def knows(self, variable: str) -> bool:
        return variable in self._vars or sets_variable(self._top.machine, variable)

    def begin(self, run: RunView) -> Intents:
        walk = Walk(self._top, run)
        walk.turn.vars.update(self._vars)
        walk.push(walk.enter, self._top, self._top.machine.initial, None)
        return walk.answer()

    def advance(self, run: RunView, outcome: Outcome) -> Intents:
        walk = Walk(self._top, run)
        if isinstance(outcome, StepOutcome) and outcome.key.startswith(undo.KEY):
            walk.undo.heard(outcome)
            return walk.answer()
        is_timeout = isinstance(outcome, TimerFired) and outcome.key.endswith("!")
        found = walk.find(outcome.key.removesuffix("!"))
        if found is None:
            return (Fail(StepFault("unknown_state", f"The workflow has no state `{outcome.key}`.")),)
        if is_timeout:
            walk.push(walk.timed_out, *found)
            return walk.answer()
        match outcome:
            case StepOutcome() | ChildOutcome():
                if outcome.fault is not None:
                    walk.push(walk.failed, *found, outcome.fault)
                else:
                    walk.push(walk.done, *found, outcome.output)
            case SignalReceived():
                walk.push(walk.done, *found, outcome.payload)
            case TaskAnswered():
                walk.push(walk.done, *found, outcome.answer)
            case TimerFired():
                walk.push(walk.done, *found, None)
        return walk.answer()


class SagaProgram(FsmProgram):
    """A machine in which states declare compensations: it undoes its work when it is cancelled or out of time."""

    def unwind(self, run: RunView, why: StepFault) -> Intents:
        walk = Walk(self._top, run)
        if walk.undo.has_work:
            walk.undo.begin({"then": "end"})
        return walk.answer()
