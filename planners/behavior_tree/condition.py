"""`condition` and `set`: leaves that take no time. A condition looks again when asked; what was set stays set."""

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, ended, failed, own_fault
from planners.behavior_tree.result import FAILED, SUCCEEDED, SUCCESS, Result, Setting
from planners.behavior_tree.tick import Tick
from planners.expressions.evaluate import Expression
from planners.expressions.templates import Template


class Condition(Node, frozen=True, kw_only=True):
    condition: Expression
    unmet: Result  # made once: a tree that looks again says no more often than yes

    def enter(self, tick: Tick, setting: Setting) -> Result:
        holds = self.condition.holds(tick.facts(setting))
        if holds is True:
            return ended(self, tick, SUCCESS)
        if holds is False:
            return ended(self, tick, self.unmet)
        return failed(self, tick, holds)

    def again(self, tick: Tick, setting: Setting) -> Result:
        return self.enter(tick, setting)

    def recall(self, tick: Tick) -> Result:
        value = tick.value(self.path)
        if value == SUCCEEDED:
            return SUCCESS
        fault = own_fault(value)
        return self.unmet if fault is None else Result(FAILED, fault=fault)


class SetVars(Node, frozen=True, kw_only=True):
    values: Template

    def enter(self, tick: Tick, setting: Setting) -> Result:
        values = self.values.render(tick.facts(setting))
        if isinstance(values, StepFault):
            return failed(self, tick, values)
        tick.set_vars(values)
        return ended(self, tick, SUCCESS)

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return SUCCESS if fault is None else Result(FAILED, fault=fault)
