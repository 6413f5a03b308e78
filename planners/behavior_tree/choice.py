"""`conditional_selector`: the first branch whose `when` holds, and nothing but that branch.

Unlike a selector it does not try the next branch when the chosen one fails. Without memory it chooses again
whenever something changes, and halts the branch it leaves. Remembers the branch it chose.
"""

from collections.abc import Iterable

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, ended, failed, halt, own_fault, visit
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, Result, Setting
from planners.behavior_tree.tick import Tick
from planners.expressions.evaluate import Expression

_NO_BRANCH = StepFault("no_branch", "No `when` of a conditional_selector holds.")


class ConditionalSelector(Node, frozen=True, kw_only=True):
    memory: bool
    conditions: tuple[Expression | None, ...]

    def enter(self, tick: Tick, setting: Setting) -> Result:
        return self._take(tick, setting, self._choose(tick, setting))

    def again(self, tick: Tick, setting: Setting) -> Result:
        return self.enter(tick, setting)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        taken: int = tick.value(self.path)[1]
        if self.memory:
            return self._take(tick, setting, taken)
        chosen = self._choose(tick, setting)
        if chosen != taken:
            halt(self.children[taken], tick)
        return self._take(tick, setting, chosen)

    def recall(self, tick: Tick) -> Result:
        value = tick.value(self.path)
        fault = own_fault(value)
        return self.children[value[1]].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def active(self, tick: Tick) -> Iterable[Node]:
        return (self.children[tick.value(self.path)[1]],)

    def _take(self, tick: Tick, setting: Setting, chosen: int | StepFault) -> Result:
        if isinstance(chosen, StepFault):
            return failed(self, tick, chosen)
        result = visit(self.children[chosen], tick, setting)
        if result.status == RUNNING:
            tick.put(self.path, [RUNNING, chosen])
            return STILL_RUNNING
        return ended(self, tick, result, chosen)

    def _choose(self, tick: Tick, setting: Setting) -> int | StepFault:
        facts = tick.facts(setting)
        for at, condition in enumerate(self.conditions):
            holds = True if condition is None else condition.holds(facts)
            if holds is True:
                return at
            if holds is not False:
                return holds
        return _NO_BRANCH
