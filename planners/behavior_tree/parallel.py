"""`parallel`: all children at once, until enough have succeeded or failed.

All children are started, and those that have something to do are visited, before anything is decided; a failure
that is due weighs more than a success. Deciding halts what still runs. Remembers how many children it has
started (a wide one starts over several ticks) and how many have ended each way.
"""

from bisect import bisect_right
from typing import Any

from agentflow.contracts.step import StepFault
from planners.behavior_tree.node import Node, ended, halt, visit
from planners.behavior_tree.result import (
    FAILED,
    JOINED,
    RUNNING,
    STILL_RUNNING,
    SUCCEEDED,
    SUCCESS,
    Result,
    Setting,
)
from planners.behavior_tree.tick import Tick


class Parallel(Node, frozen=True, kw_only=True):
    success: int  # so many children must succeed
    failure: int  # so many may not fail
    starts: tuple[int, ...]  # the place of each child
    names: tuple[str, ...]  # and its name, or its number among them

    def enter(self, tick: Tick, setting: Setting) -> Result:
        return self._go_on(tick, setting, 0, 0, 0, -1)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        _, started, succeeded, failures, last = tick.value(self.path)
        for child in self._concerned(tick, started):
            if tick.status(child.path) in (SUCCEEDED, FAILED):
                continue
            result = visit(child, tick, setting)
            if result.status == SUCCEEDED:
                succeeded += 1
            elif result.status == FAILED:
                failures, last = failures + 1, bisect_right(self.starts, child.at) - 1
        return self._go_on(tick, setting, started, succeeded, failures, last)

    def recall(self, tick: Tick) -> Result:
        value = tick.value(self.path)
        if value == SUCCEEDED:
            return self._success()
        return Result(FAILED, fault=_fault(self.children[value[1]].recall(tick).fault))

    def _go_on(self, tick: Tick, setting: Setting, started: int, succeeded: int, failures: int, last: int) -> Result:
        while started < len(self.children):
            if tick.exhausted:
                tick.cut(self)
                break
            result = visit(self.children[started], tick, setting)
            if result.status == SUCCEEDED:
                succeeded += 1
            elif result.status == FAILED:
                failures, last = failures + 1, started
            started += 1
        if failures >= self.failure or (succeeded < self.success and succeeded + failures == len(self.children)):
            fault = _fault(self.children[last].recall(tick).fault)
            return self._decided(tick, Result(FAILED, fault=fault), succeeded + failures, last)
        if succeeded >= self.success:
            return self._decided(tick, self._success(), succeeded + failures)
        tick.put(self.path, [RUNNING, started, succeeded, failures, last])
        return STILL_RUNNING

    def _decided(self, tick: Tick, result: Result, over: int, *more: int) -> Result:
        for child in self.children if over < len(self.children) else ():
            halt(child, tick)
        tick.uncut(self)
        return ended(self, tick, result, *more)

    def yielded(self, tick: Tick) -> dict[str, Any]:
        """The outputs of the children that succeeded, each by its name or its place."""
        found = {}
        all_did = self.success == len(self.children)  # or it would not have succeeded: none of them must be asked
        for name, child in zip(self.names, self.children, strict=True):
            if child.can_yield and (all_did or tick.status(child.path) == SUCCEEDED):
                yields = child.yields(tick)
                if yields is not None:
                    found[name] = tick.output(yields)
        return found

    def _success(self) -> Result:
        return Result(SUCCEEDED, f"{JOINED}{self.path}") if self.can_yield else SUCCESS

    def _concerned(self, tick: Tick, started: int) -> list[Node]:
        """The children to visit, in their order. Found by place: a wide parallel must not be walked for one step."""
        if self.looks:
            return [child for child in self.children[:started] if tick.concerns(child)]
        found = {bisect_right(self.starts, place) - 1 for place in tick.places(self)}
        return [self.children[at] for at in sorted(found) if 0 <= at < started]


def _fault(fault: StepFault | None) -> StepFault:
    return fault or StepFault("parallel_failed", "Too many children failed.")
