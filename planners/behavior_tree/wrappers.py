"""`invert`, `force_success` and `force_failure`: another word for how their child ended. They remember nothing else."""

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, ended, visit
from planners.behavior_tree.result import FAILED, RUNNING, STILL_RUNNING, SUCCEEDED, SUCCESS, Result, Setting
from planners.behavior_tree.tick import Tick

_INVERTED = Result(FAILED, fault=StepFault("inverted", "What `invert` stands before has succeeded."))
_FORCED = Result(FAILED, fault=StepFault("forced_failure", "`force_failure` turned a success into a failure."))


class Wrapper(Node, frozen=True, kw_only=True):
    def enter(self, tick: Tick, setting: Setting) -> Result:
        result = visit(self.children[0], tick, setting)
        if result.status == RUNNING:
            tick.put(self.path, RUNNING)
            return STILL_RUNNING
        return ended(self, tick, self.turned(result))

    def resume(self, tick: Tick, setting: Setting) -> Result:
        return self.enter(tick, setting)

    def again(self, tick: Tick, setting: Setting) -> Result:
        return self.enter(tick, setting)

    def recall(self, tick: Tick) -> Result:
        return self.turned(self.children[0].recall(tick))

    def turned(self, result: Result) -> Result:
        raise NotImplementedError


class Invert(Wrapper, frozen=True, kw_only=True):
    def turned(self, result: Result) -> Result:
        return _INVERTED if result.status == SUCCEEDED else SUCCESS


class ForceSuccess(Wrapper, frozen=True, kw_only=True):
    def turned(self, result: Result) -> Result:
        return result if result.status == SUCCEEDED else SUCCESS


class ForceFailure(Wrapper, frozen=True, kw_only=True):
    def turned(self, result: Result) -> Result:
        return _FORCED if result.status == SUCCEEDED else result
