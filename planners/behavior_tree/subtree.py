"""`subtree`: a tree that was written once and is used here, with parameters.

It is a world of its own: inside, its parameters are names and `steps` are its own, under names that no other
use shares. Parameters are made once, when it is entered, and remembered as long as it is.
"""

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, failed, own_fault, visit
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, Result, Setting
from planners.behavior_tree.tick import Tick
from planners.expressions.templates import Template


class Subtree(Node, frozen=True, kw_only=True):
    prefix: str
    params: Template

    def enter(self, tick: Tick, setting: Setting) -> Result:
        params = self.params.render(tick.facts(setting))
        if isinstance(params, StepFault):
            return failed(self, tick, params)
        return self._within(tick, Setting(locals=params, prefix=self.prefix))

    def resume(self, tick: Tick, setting: Setting) -> Result:
        return self._within(tick, self._setting(tick))

    def again(self, tick: Tick, setting: Setting) -> Result:
        if own_fault(tick.value(self.path)) is not None:
            return self.recall(tick)
        return self._within(tick, self._setting(tick))

    def recall(self, tick: Tick) -> Result:
        fault = own_fault(tick.value(self.path))
        return self.children[0].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def _within(self, tick: Tick, setting: Setting) -> Result:
        result = visit(self.children[0], tick, setting)
        status = result.status
        tick.put(self.path, [status, dict(setting.locals)] if setting.locals else status)
        return STILL_RUNNING if status == RUNNING else result

    def _setting(self, tick: Tick) -> Setting:
        value = tick.value(self.path)
        return Setting(locals=value[1] if isinstance(value, list) else {}, prefix=self.prefix)
