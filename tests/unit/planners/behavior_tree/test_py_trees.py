"""The same trees in py_trees: where both know a node, both must agree about it, event by event.

py_trees ticks its whole tree and knows nothing of steps that cost money, so its leaves here remember how they
ended (`Leaf`); and it takes a tick more to begin a round of a loop, so it is ticked until it comes to rest.
"""

import random
from typing import Any

import py_trees
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.common import ParallelPolicy, Status

from tests.unit.planners.behavior_tree.play import Play
from tests.unit.planners.behavior_tree.random_trees import FLAGS, ended_well, tree_program, without_what_is_refused

SEEDS = st.integers(min_value=0, max_value=2**32)


class Leaf(py_trees.behaviour.Behaviour):
    """A step: running until the test says how it ended. What has ended stays so, unless it is in a loop."""

    def __init__(self, name: str, *, keeps: bool) -> None:
        super().__init__(name)
        self._keeps = keeps
        self.outcome: Status | None = None

    def initialise(self) -> None:
        if not self._keeps:
            self.outcome = None

    def update(self) -> Status:
        return self.outcome or Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        if new_status == Status.INVALID and self.status == Status.RUNNING:
            self.outcome = None


class Flag(py_trees.behaviour.Behaviour):
    def __init__(self, name: str, flags: dict[str, bool]) -> None:
        super().__init__(name)
        self._flags = flags

    def update(self) -> Status:
        return Status.SUCCESS if self._flags[self.name] else Status.FAILURE


class Twins:
    """The same tree twice."""

    def __init__(self, tree: dict[str, Any], *, keeps: bool) -> None:
        self._keeps = keeps
        self.flags = dict.fromkeys(FLAGS, True)
        self.leaves: dict[str, Leaf] = {}
        self.theirs = self._made(tree)
        self.ours = Play(tree_program(tree), dict(self.flags))

    def begin(self) -> None:
        self.ours.begin()
        self._tick()

    def happen(self, name: str, *, well: bool) -> None:
        self.ours.input = dict(self.flags)
        self.leaves[name].outcome = Status.SUCCESS if well else Status.FAILURE
        if well:
            self.ours.ok(name)
        else:
            self.ours.fail(name)
        self._tick()

    def agree(self) -> None:
        if self.ours.ending is None:
            assert self.theirs.status == Status.RUNNING
            running = {name for name, leaf in self.leaves.items() if leaf.status == Status.RUNNING}
            assert set(self.ours.steps) == running
        else:
            assert self.theirs.status == (Status.SUCCESS if ended_well(self.ours) else Status.FAILURE)

    def _tick(self) -> None:
        before: list[Any] = []
        while self._standing() != before:
            before = self._standing()
            self.theirs.tick_once()
            if self._keeps or self.theirs.status != Status.RUNNING:
                return

    def _standing(self) -> list[Any]:
        counters = ("status", "failures", "success")
        return [[getattr(node, counter, None) for counter in counters] for node in self.theirs.iterate()]

    def _made(self, node: dict[str, Any]) -> py_trees.behaviour.Behaviour:
        ((kind, part),) = node.items()
        match kind:
            case "condition":
                return Flag(part.removeprefix("input."), self.flags)
            case "action":
                self.leaves[part["name"]] = Leaf(part["name"], keeps=self._keeps)
                return self.leaves[part["name"]]
            case "sequence":
                return py_trees.composites.Sequence(kind, part["memory"], self._below(part))
            case "selector":
                return py_trees.composites.Selector(kind, part["memory"], self._below(part))
            case "parallel":
                all_ = part["success"] == "all"
                policy = ParallelPolicy.SuccessOnAll(synchronise=True) if all_ else ParallelPolicy.SuccessOnOne()
                return py_trees.composites.Parallel(kind, policy, self._below(part))
        child = self._made(part["do"])
        match kind:
            case "invert":
                return py_trees.decorators.Inverter(kind, child)
            case "force_success":
                return py_trees.decorators.FailureIsSuccess(kind, child)
            case "force_failure":
                return py_trees.decorators.SuccessIsFailure(kind, child)
            case "retry":
                return py_trees.decorators.Retry(kind, child, part["attempts"])
            case _:
                return py_trees.decorators.Repeat(kind, child, part["times"])

    def _below(self, part: dict[str, Any]) -> list[py_trees.behaviour.Behaviour]:
        return [self._made(child) for child in part["children"]]


class SharedGrower:
    """Trees of what both know. Below a node without memory each child has one step at most: what py_trees does
    with the finished steps of a child that it interrupts is to forget them, which `Leaf` cannot tell apart."""

    def __init__(self, chance: random.Random, *, loops: bool) -> None:
        self._chance = chance
        self._loops = loops
        self._steps = 0

    def node(self, size: int, *, plain: bool = False) -> dict[str, Any]:
        if size <= 1:
            return self._leaf()
        if self._chance.random() < 0.25:
            return self._decorated(size, plain=plain)
        kind = self._chance.choice(["sequence", "selector"] if plain else ["sequence", "selector", "parallel"])
        looks = not self._loops and not plain and kind != "parallel" and self._chance.random() < 0.5
        if looks or plain:
            children = self._with_one_step(size - 1) if looks else self._few(size - 1)
            return {kind: {"children": children, "memory": not looks}}
        children = [self.node(part) for part in self._parts(size - 1)]
        if kind == "parallel":
            # With loops, who comes first in a race depends on ticks that only py_trees takes.
            any_ = not self._loops and self._chance.random() < 0.5
            thresholds = {"success": "any", "failure": 1} if any_ else {"success": "all"}
            return {kind: {"children": children, **thresholds}}
        return {kind: {"children": children, "memory": True}}

    def _with_one_step(self, size: int) -> list[dict[str, Any]]:
        return [self.node(min(part, 4), plain=True) for part in self._parts(size)]

    def _few(self, size: int) -> list[dict[str, Any]]:
        """Conditions, and one step among them."""
        leaves = [self._condition() for _ in range(max(1, size - 1))]
        leaves.insert(self._chance.randint(0, len(leaves)), self._action())
        return leaves

    def _decorated(self, size: int, *, plain: bool) -> dict[str, Any]:
        kinds = ["invert", "force_success", "force_failure"] + (["retry", "repeat"] if self._loops else [])
        kind = self._chance.choice(kinds)
        options = {"retry": {"attempts": self._chance.randint(1, 3)}, "repeat": {"times": self._chance.randint(1, 3)}}
        return {kind: {**options.get(kind, {}), "do": self.node(size - 1, plain=plain)}}

    def _leaf(self) -> dict[str, Any]:
        return self._condition() if self._chance.random() < 0.3 else self._action()

    def _condition(self) -> dict[str, Any]:
        return {"condition": f"input.{self._chance.choice(FLAGS)}"}

    def _action(self) -> dict[str, Any]:
        self._steps += 1
        return {"action": {"name": f"s{self._steps}", "agent": "a"}}

    def _parts(self, size: int) -> list[int]:
        parts = []
        while size > 0:
            parts.append(min(size, self._chance.randint(1, max(1, size // 2 + 1))))
            size -= parts[-1]
        return parts


@pytest.mark.parametrize("loops", [False, True], ids=["without memory", "with loops"])
@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, size=st.integers(min_value=2, max_value=40))
def test_both_agree_after_every_event(loops, seed, size):
    chance = random.Random(seed)
    twins = Twins(without_what_is_refused(SharedGrower(chance, loops=loops).node(size)), keeps=not loops)
    twins.begin()
    twins.agree()
    while twins.ours.ending is None:
        if not loops:
            twins.flags.update({flag: chance.random() < 0.7 for flag in FLAGS})
        twins.happen(chance.choice(sorted(twins.ours.steps)), well=chance.random() < 0.75)
        twins.agree()
