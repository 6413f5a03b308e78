"""`timeout` and `cooldown`: how long a child may take, and how long it then rests.

The time is that of the outcome that ticks the tree. A timeout remembers nothing but that it runs; a cooldown
keeps the end of the rest under a name of its own, so that it outlives the rounds of a loop around it.
"""

from agentflow.contracts.step import StepFault
from agentflow.execution.program import StartTimer, TimerFired
from agentflow.workflow.durations import format_duration
from planners.behavior_tree.node import Node, ended, failed, halt, own_fault, visit
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, Result, Setting
from planners.behavior_tree.tick import Tick


class Timeout(Node, frozen=True, kw_only=True):
    after_ms: int

    def enter(self, tick: Tick, setting: Setting) -> Result:
        result = visit(self.children[0], tick, setting)
        if result.status == RUNNING:
            tick.ask(StartTimer(self.path, tick.at_ms + self.after_ms))
            tick.put(self.path, RUNNING)
            return STILL_RUNNING
        return ended(self, tick, result)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        if isinstance(tick.outcome, TimerFired) and tick.outcome.key == self.path:
            halt(self.children[0], tick)
            return failed(self, tick, StepFault("timeout", f"Not done within {format_duration(self.after_ms)}."))
        result = visit(self.children[0], tick, setting)
        if result.status == RUNNING:
            return STILL_RUNNING
        tick.give_up(self.path)
        return ended(self, tick, result)

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return self.children[0].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def release(self, tick: Tick) -> None:
        tick.give_up(self.path)


class Cooldown(Node, frozen=True, kw_only=True):
    for_ms: int

    def enter(self, tick: Tick, setting: Setting) -> Result:
        until = tick.value(self._rest)
        if until is not None and tick.at_ms < until:
            rest = format_duration(until - tick.at_ms)
            return failed(self, tick, StepFault("cooldown", f"It rests for {rest} more."))
        return self._go_on(tick, setting)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        return self._go_on(tick, setting)

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return self.children[0].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def _go_on(self, tick: Tick, setting: Setting) -> Result:
        result = visit(self.children[0], tick, setting)
        if result.status == RUNNING:
            tick.put(self.path, RUNNING)
            return STILL_RUNNING
        tick.put(self._rest, tick.at_ms + self.for_ms)
        return ended(self, tick, result)

    @property
    def _rest(self) -> str:
        return f"{self.path}#rest"
