"""What every node of a tree can do, and the three ways to treat one: visit it, halt it, clear it.

A node is asked in one of three moods. It is *entered* when it has not been visited since its parent began,
*resumed* when it is running and something below it may have changed, and asked *again* when it has ended and a
parent without memory looks at it once more: then conditions are evaluated anew, and whatever has had an effect
(a step, a timer, a loop) keeps its result. A tree without memory looks again; it never does work twice.

What a node remembers is one small value under its path: its status, alone or at the head of a list.
"""

from collections.abc import Iterable

import msgspec

from agentflow.contracts.step import StepFault
from planners.behavior_tree.result import (
    FAILED,
    HALTED,
    RUNNING,
    STILL_RUNNING,
    SUCCEEDED,
    Result,
    Setting,
)
from planners.behavior_tree.tick import Tick


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """`at` counts the nodes in the order of the text; the nodes below one are those from `at` up to `end`."""

    path: str
    at: int
    end: int
    children: tuple["Node", ...] = ()
    looks: bool = False  # it, or a node below it, looks again while it is running
    can_yield: bool = False  # its success may give `output` to what follows

    def enter(self, tick: Tick, setting: Setting) -> Result:
        raise NotImplementedError

    def resume(self, tick: Tick, setting: Setting) -> Result:
        raise NotImplementedError

    def again(self, tick: Tick, setting: Setting) -> Result:
        """The result it would have now. Unless a node says otherwise, the one it has."""
        return self.recall(tick)

    def recall(self, tick: Tick) -> Result:
        """How it ended, from what it remembers."""
        raise NotImplementedError

    def yields(self, tick: Tick) -> str | None:
        """What its success named as `output`, without the rest of its result."""
        return self.recall(tick).yields

    def active(self, tick: Tick) -> Iterable["Node"]:
        """The children that may be running while it is."""
        return self.children

    def release(self, tick: Tick) -> None:
        """Give up what the node itself, not a child, holds open."""


def visit(node: Node, tick: Tick, setting: Setting) -> Result:
    """A node's result for its parent, in whatever mood it is met."""
    status = tick.status(node.path)
    if status == RUNNING:
        return node.resume(tick, setting) if tick.concerns(node) else STILL_RUNNING
    if status in (SUCCEEDED, FAILED):
        # Not counted: it is done once for each pass, and a tree that looks at much must still get on.
        return node.again(tick, setting)
    if tick.exhausted:
        tick.cut(node)
        return STILL_RUNNING
    if status == HALTED:
        clear(node, tick)
    tick.spend()
    return node.enter(tick, setting)


def halt(node: Node, tick: Tick) -> None:
    """Stop whatever runs at or below a node."""
    status = tick.status(node.path)
    if status != RUNNING:
        tick.uncut(node)
        return
    for child in node.active(tick):
        halt(child, tick)
    node.release(tick)
    tick.uncut(node)
    tick.put(node.path, HALTED)


def clear(node: Node, tick: Tick) -> None:
    """Forget a node and all below it. A node without a memory has none below it either."""
    if tick.status(node.path) is None:
        return
    tick.forget(node.path)
    for child in node.children:
        clear(child, tick)


def ended(node: Node, tick: Tick, result: Result, *more: int | str) -> Result:
    tick.put(node.path, [result.status, *more] if more else result.status)
    return result


def failed(node: Node, tick: Tick, fault: StepFault) -> Result:
    """Ended by a fault of the node's own, which it remembers."""
    tick.put(node.path, [FAILED, fault.code, fault.message[:_FAULT_CHARS_MAX]])
    return Result(FAILED, fault=fault)


def own_fault(value: object, at: int = 1) -> StepFault | None:
    """The fault that `failed` wrote, if it is one."""
    if isinstance(value, list) and len(value) == at + 2 and isinstance(value[at], str):
        return StepFault(value[at], value[at + 1])
    return None


# A fault is kept to be shown and routed by, not as a log: memory is for small values.
_FAULT_CHARS_MAX = 500
