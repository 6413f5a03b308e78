"""The compiled behaviour tree: each outcome is one tick, and the answer is what the tick asks for.

Answers `agentflow.execution.decide` through the `Program` protocol. A tick goes down from the root along the
nodes that the outcome concerns. One that would visit too many nodes stops where it is, remembers the place under
`#slice` and asks for a timer that is due at once, so that others have their turn between.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.program import (
    Fail,
    Finish,
    Halt,
    Intent,
    Intents,
    Outcome,
    RunView,
    StartTimer,
)
from planners.behavior_tree.leaves import Leaf
from planners.behavior_tree.node import Node, halt, visit
from planners.behavior_tree.parallel import Parallel
from planners.behavior_tree.plan import kind_of, tree_plan
from planners.behavior_tree.result import FAILED, RUNNING, SUCCEEDED, Result, Setting
from planners.behavior_tree.tick import Tick, Yielding
from planners.plan import Plan

SLICE = "#slice"
_OUTSIDE = Setting()
# Variables that a tick sets may change conditions it has passed: then it looks once more, so often at most.
_PASSES_MAX = 8


class TreeProgram:
    def __init__(self, root: Node, vars: Mapping[str, Any], known: Collection[str] = ()) -> None:
        """`known`: every variable that is declared or set anywhere in it."""
        self.root = root
        self._vars = dict(vars)
        self._known = frozenset(known)
        self._nodes = {node.path: node for node in walk(root)}
        kept = {
            node.name: node.output_key for node in self._nodes.values() if isinstance(node, Leaf) and node.keeps_output
        }  # fmt: skip
        self._yielding = Yielding(kept, self._joined)

    def plan(self) -> Plan:
        return tree_plan(self.root)

    # What a run that another version began may be moved by (`agentflow.execution.moving`).

    def standing(self, memory: Mapping[str, Any]) -> Iterator[str]:
        """Nodes that are running, and `#slice`: in the middle of a tick nothing can be moved."""
        for key, value in memory.items():
            if key == SLICE or value == RUNNING or (isinstance(value, list) and value[:1] == [RUNNING]):
                yield key

    def kind_at(self, place: str) -> str | None:
        node = self._nodes.get(place)
        return None if node is None else kind_of(node)

    def variables(self) -> Mapping[str, Any]:
        return self._vars

    def knows(self, variable: str) -> bool:
        return variable in self._known

    def begin(self, run: RunView) -> Intents:
        tick = Tick(run, None, [], self._yielding)
        tick.set_vars({name: value for name, value in self._vars.items() if name not in run.vars})
        return self._ticked(tick)

    def advance(self, run: RunView, outcome: Outcome) -> Intents:
        slices, places = _slices(run.memory)
        if outcome.key == SLICE:
            if not places:
                return ()
            return self._ticked(Tick(run, outcome, places, self._yielding), slices)
        node = self._nodes.get(outcome.key)
        if node is None:
            return ()
        tick = Tick(run, outcome, [*places, node.at], self._yielding)
        if tick.status(node.path) != RUNNING:
            return ()  # a latecomer: nobody waits for it any more
        return self._ticked(tick, slices)

    def noticed(self, run: RunView) -> Intents:
        """Somebody changed the variables: conditions that are looked at again may have another answer."""
        slices, places = _slices(run.memory)
        tick = Tick(run, None, places, self._yielding)
        return self._ticked(tick, slices) if self.root.looks and tick.status(self.root.path) == RUNNING else ()

    def _joined(self, tick: Tick, path: str) -> dict[str, Any]:
        node = self._nodes[path]
        return node.yielded(tick) if isinstance(node, Parallel) else {}

    def _ticked(self, tick: Tick, slices: int = 0) -> Intents:
        result = visit(self.root, tick, _OUTSIDE)
        for _ in range(_PASSES_MAX):
            if result.status != RUNNING or not tick.vars_changed or not self.root.looks:
                break
            tick.look_again()
            result = visit(self.root, tick, _OUTSIDE)
        else:
            tick.cut(self.root)
        return tuple(self._answer(tick, result, slices))

    def _answer(self, tick: Tick, result: Result, slices: int) -> Iterator[Intent]:
        was_sliced, by_timer = slices > 0, tick.over == SLICE
        slices = slices + 1 if by_timer else 1
        if slices > limits.TREE_SLICES_MAX:
            halt(self.root, tick)
            message = f"The tree went on for {limits.TREE_SLICES_MAX} ticks without waiting for anything."
            result = Result(FAILED, fault=StepFault("no_progress", message))
        goes_on = bool(tick.cuts) and result.status == RUNNING
        if goes_on:
            tick.put(SLICE, [slices, *tick.cuts])
        elif was_sliced:
            tick.forget(SLICE)
        yield from tick.intents()
        if goes_on and (by_timer or not was_sliced):
            yield StartTimer(SLICE, tick.at_ms)
        elif was_sliced and not goes_on and not by_timer:
            yield Halt(SLICE)
        if result.status != RUNNING:
            yield _ending(tick, result)


def walk(root: Node) -> Iterator[Node]:
    """All nodes in the order of the text."""
    rest = [root]
    while rest:
        node = rest.pop()
        yield node
        rest.extend(reversed(node.children))


def _slices(memory: Mapping[str, Any]) -> tuple[int, list[int]]:
    """How many ticks in a row were cut short, and where the last one was."""
    value = memory.get(SLICE)
    return (0, []) if value is None else (value[0], list(value[1:]))


def _ending(tick: Tick, result: Result) -> Finish | Fail:
    if result.status == SUCCEEDED:
        return Finish(tick.output(result.yields))
    return Fail(result.fault or StepFault("tree_failed", "The tree failed."))
