"""`sequence` and `selector`: one child after the other, until one decides.

A sequence ends with the first child that fails, a selector with the first that succeeds. With memory it goes on
from the child that is running; without, it first looks again at the children before that one, and halts it when
one of them has changed its mind. Remembers the place of the child it has come to.
"""

from collections.abc import Iterable

from planners.behavior_tree.node import Node, ended, halt, visit
from planners.behavior_tree.result import (
    FAILED,
    RUNNING,
    STILL_RUNNING,
    SUCCEEDED,
    Result,
    Setting,
    Status,
    after_failure,
    after_success,
)
from planners.behavior_tree.tick import Tick


class Ordered(Node, frozen=True, kw_only=True):
    memory: bool
    decides: Status  # the status of a child that ends it
    # For each child, the nearest one before it whose success may yield an output; -1 where there is none.
    yielders: tuple[int, ...] = ()

    def enter(self, tick: Tick, setting: Setting) -> Result:
        return self._from(tick, setting, 0)

    def again(self, tick: Tick, setting: Setting) -> Result:
        return self._from(tick, setting, 0)

    def resume(self, tick: Tick, setting: Setting) -> Result:
        reached = self._reached(tick)
        if self.memory:
            return self._from(tick, self._setting_at(tick, setting, reached), reached)
        result = self._from(tick, setting, 0)
        if self._reached(tick) < reached:
            halt(self.children[reached], tick)
        return result

    def recall(self, tick: Tick) -> Result:
        reached = self._reached(tick)
        if tick.status(self.path) == FAILED:
            return Result(FAILED, fault=self.children[reached].recall(tick).fault)
        if self.decides == SUCCEEDED:
            return self.children[reached].recall(tick)
        return Result(SUCCEEDED, self._yielded_before(tick, len(self.children)))

    def active(self, tick: Tick) -> Iterable[Node]:
        return (self.children[self._reached(tick)],)

    def _from(self, tick: Tick, setting: Setting, at: int) -> Result:
        last = len(self.children) - 1
        while True:
            result = visit(self.children[at], tick, setting)
            if result.status == RUNNING:
                tick.put(self.path, [RUNNING, at])
                return STILL_RUNNING
            setting = after_success(setting, result) if self.decides == FAILED else after_failure(setting, result)
            if result.status == self.decides or at == last:
                if result.status == SUCCEEDED and self.decides == FAILED:
                    result = Result(SUCCEEDED, setting.last)
                return ended(self, tick, result, at)
            at += 1

    def _reached(self, tick: Tick) -> int:
        reached: int = tick.value(self.path)[1]
        return reached

    def _setting_at(self, tick: Tick, setting: Setting, at: int) -> Setting:
        """The setting of a child, when the ones before it ended in earlier ticks."""
        if at == 0:
            return setting
        if self.decides == SUCCEEDED:
            return after_failure(setting, self.children[at - 1].recall(tick))
        return after_success(setting, Result(SUCCEEDED, self._yielded_before(tick, at)))

    def _yielded_before(self, tick: Tick, at: int) -> str | None:
        at = self.yielders[at]
        while at >= 0:
            yields = self.children[at].recall(tick).yields
            if yields is not None:
                return yields
            at = self.yielders[at]
        return None


def yielders(children: Iterable[Node]) -> tuple[int, ...]:
    """For each place, the end included, the nearest child before it that can yield."""
    nearest, found = -1, []
    for at, child in enumerate(children):
        found.append(nearest)
        if child.can_yield:
            nearest = at
    return (*found, nearest)
