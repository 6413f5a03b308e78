"""`retry` and `repeat`: the same child again, within a bound that the definition must name.

Each round begins with a clean child. A loop over nothing but conditions could hold up everybody, so a round counts
against the tick's budget like any visit. Remember the round they are in.
"""

from collections.abc import Iterable

from agentflow.contracts.step import StepFault
from agentflow.execution.program import StartTimer, TimerFired
from planners.behavior_tree.node import Node, clear, ended, failed, own_fault, visit
from planners.behavior_tree.result import (
    FAILED,
    RUNNING,
    STILL_RUNNING,
    SUCCEEDED,
    Result,
    Setting,
    after_success,
)
from planners.behavior_tree.tick import Tick
from planners.expressions.evaluate import Expression

_PAUSED = "p"


class Retry(Node, frozen=True, kw_only=True):
    """Until the child succeeds, at most `attempts` times, `delay_ms` apart."""

    attempts: int
    delay_ms: int

    def enter(self, tick: Tick, setting: Setting) -> Result:
        return self._from(tick, setting, 1)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        _, attempt, *paused = tick.value(self.path)
        if paused and not (isinstance(tick.outcome, TimerFired) and tick.outcome.key == self.path):
            return STILL_RUNNING
        return self._from(tick, setting, attempt)

    def recall(self, tick: Tick) -> Result:
        return self.children[0].recall(tick)

    def active(self, tick: Tick) -> Iterable[Node]:
        return () if self._paused(tick) else self.children

    def release(self, tick: Tick) -> None:
        if self._paused(tick):
            tick.give_up(self.path)

    def _from(self, tick: Tick, setting: Setting, attempt: int) -> Result:
        while True:
            result = visit(self.children[0], tick, setting)
            if result.status == RUNNING:
                tick.put(self.path, [RUNNING, attempt])
                return STILL_RUNNING
            if result.status == SUCCEEDED or attempt >= self.attempts:
                return ended(self, tick, result, attempt)
            clear(self.children[0], tick)
            attempt += 1
            if self.delay_ms:
                tick.ask(StartTimer(self.path, tick.at_ms + self.delay_ms))
                tick.put(self.path, [RUNNING, attempt, _PAUSED])
                return STILL_RUNNING

    def _paused(self, tick: Tick) -> bool:
        return len(tick.value(self.path)) > 2


class Repeat(Node, frozen=True, kw_only=True):
    """`times` rounds that all succeed; with `until`, as many as it takes and no more than that."""

    times: int
    until: Expression | None

    def enter(self, tick: Tick, setting: Setting) -> Result:
        return self._from(tick, setting, 1)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        return self._from(tick, setting, tick.value(self.path)[1])

    def recall(self, tick: Tick) -> Result:
        value = tick.value(self.path)
        fault = own_fault(value)
        return self.children[0].recall(tick) if fault is None else Result(FAILED, fault=fault)

    def _from(self, tick: Tick, setting: Setting, turn: int) -> Result:
        while True:
            result = visit(self.children[0], tick, setting)
            if result.status == RUNNING:
                tick.put(self.path, [RUNNING, turn])
                return STILL_RUNNING
            if result.status == FAILED:
                return ended(self, tick, result, turn)
            holds = self._holds(tick, after_success(setting, result))
            if isinstance(holds, StepFault):
                return failed(self, tick, holds)
            if holds or (self.until is None and turn >= self.times):
                return ended(self, tick, result, turn)
            if turn >= self.times:
                message = f"`{self.until.text}` does not hold after {self.times} rounds." if self.until else ""
                return failed(self, tick, StepFault("bound_reached", message))
            clear(self.children[0], tick)
            turn += 1

    def _holds(self, tick: Tick, setting: Setting) -> bool | StepFault:
        return False if self.until is None else self.until.holds(tick.facts(setting))
