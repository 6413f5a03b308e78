"""The leaves that ask for something and wait for it: `action`, `wait`, `signal`, `human`, `subworkflow`.

Each holds at most one thing open, under its own path; being halted gives it up. They remember that they run, and
why they failed.
"""

from typing import Any

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry
from agentflow.execution.program import (
    AskHuman,
    AwaitSignal,
    ChildOutcome,
    Outcome,
    RunStep,
    SignalReceived,
    StartChild,
    StartTimer,
    StepOutcome,
    TaskAnswered,
    TimerFired,
)
from agentflow.ids import AgentName
from planners.behavior_tree.node import Node, ended, failed, own_fault
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, SUCCEEDED, Result, Setting
from planners.behavior_tree.tick import Ask, Tick
from planners.expressions.templates import Template
from planners.rules import moment_of


class Leaf(Node, frozen=True, kw_only=True):
    """`name` is its step's, within its subtree and all; `vars` are set from its output when it succeeds."""

    name: str = ""
    vars: Template | None = None

    @property
    def keeps_output(self) -> bool:
        """Whether what came is the tree's to remember; the output of an action is kept with the run."""
        return self.can_yield

    @property
    def output_key(self) -> str:
        return f"{self.path}#output"

    def request(self, tick: Tick, setting: Setting) -> Ask | StepFault:
        """What it asks for, or why that cannot be made."""
        raise NotImplementedError

    def enter(self, tick: Tick, setting: Setting) -> Result:
        request = self.request(tick, setting)
        if isinstance(request, StepFault):
            return failed(self, tick, request)
        tick.ask(request)
        tick.put(self.path, RUNNING)
        return STILL_RUNNING

    def resume(self, tick: Tick, setting: Setting) -> Result:
        outcome = tick.outcome
        if outcome is None or outcome.key != self.path:
            return STILL_RUNNING
        output, fault = _ending(outcome)
        if fault is None and self.vars is not None:
            values = self.vars.render(tick.facts(setting, output))
            if isinstance(values, StepFault):
                fault = values
            else:
                tick.set_vars(values)
        if fault is not None:
            return failed(self, tick, fault)
        if self.keeps_output:
            tick.put(self.output_key, [output])
        return ended(self, tick, self._success())

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return self._success() if fault is None else Result(FAILED, fault=fault)

    def yields(self, tick: Tick) -> str | None:
        return self.name if self.can_yield else None

    def release(self, tick: Tick) -> None:
        tick.give_up(self.path)

    def _success(self) -> Result:
        return Result(SUCCEEDED, self.name if self.can_yield else None)


def _ending(outcome: Outcome) -> tuple[Any, StepFault | None]:
    match outcome:
        case StepOutcome() | ChildOutcome():
            return outcome.output, outcome.fault
        case SignalReceived():
            return outcome.payload, None
        case TaskAnswered():
            return outcome.answer, None
        case TimerFired():
            return None, None


class Action(Leaf, frozen=True, kw_only=True):
    agent: AgentName
    tool: str | None
    input: Template
    timeout_ms: int
    retry: Retry

    @property
    def keeps_output(self) -> bool:
        return False

    def request(self, tick: Tick, setting: Setting) -> Ask | StepFault:
        given = self.input.render(tick.facts(setting))
        if isinstance(given, StepFault):
            return given
        return RunStep(self.path, self.name, self.agent, self.tool, given, self.timeout_ms, self.retry)


class Wait(Leaf, frozen=True, kw_only=True):
    for_ms: int | None
    until: Template | None

    def request(self, tick: Tick, setting: Setting) -> Ask | StepFault:
        if self.until is None:
            return StartTimer(self.path, tick.at_ms + (self.for_ms or 0))
        moment = moment_of(self.until.render(tick.facts(setting)))
        return moment if isinstance(moment, StepFault) else StartTimer(self.path, moment)


class Signal(Leaf, frozen=True, kw_only=True):
    signal: str

    def request(self, tick: Tick, setting: Setting) -> Ask:
        return AwaitSignal(self.path, self.signal)


class Human(Leaf, frozen=True, kw_only=True):
    task: Template

    def request(self, tick: Tick, setting: Setting) -> Ask | StepFault:
        task = self.task.render(tick.facts(setting))
        return task if isinstance(task, StepFault) else AskHuman(self.path, task)


class Subworkflow(Leaf, frozen=True, kw_only=True):
    workflow: str
    version: str
    input: Template

    def request(self, tick: Tick, setting: Setting) -> Ask | StepFault:
        given = self.input.render(tick.facts(setting))
        return given if isinstance(given, StepFault) else StartChild(self.path, self.workflow, self.version, given)
