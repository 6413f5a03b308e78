"""`guard`: its child runs only while a condition holds. Looks again whenever something changes, and then halts it."""

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, ended, failed, halt, own_fault, visit
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, Result, Setting
from planners.behavior_tree.tick import Tick
from planners.expressions.evaluate import Expression


class Guard(Node, frozen=True, kw_only=True):
    condition: Expression

    def enter(self, tick: Tick, setting: Setting) -> Result:
        fault = self._refusal(tick, setting)
        return self._go_on(tick, setting) if fault is None else failed(self, tick, fault)

    def again(self, tick: Tick, setting: Setting) -> Result:
        return self.enter(tick, setting)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        fault = self._refusal(tick, setting)
        if fault is None:
            return self._go_on(tick, setting)
        halt(self.children[0], tick)
        return failed(self, tick, fault)

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return self.children[0].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def _go_on(self, tick: Tick, setting: Setting) -> Result:
        result = visit(self.children[0], tick, setting)
        if result.status == RUNNING:
            tick.put(self.path, RUNNING)
            return STILL_RUNNING
        return ended(self, tick, result)

    def _refusal(self, tick: Tick, setting: Setting) -> StepFault | None:
        holds = self.condition.holds(tick.facts(setting))
        if holds is True:
            return None
        return StepFault("guard", f"`{self.condition.text}` does not hold.") if holds is False else holds
