"""Trees nobody would write, and days nobody would have: the same seed is the same tree and the same day."""

import json
import random
from typing import Any

from agentflow.execution.program import Finish, RunStep, StartTimer
from planners.behavior_tree.program import TreeProgram
from planners.kinds import compile_workflow
from tests.unit.planners.behavior_tree.play import Play

FLAGS = ("c0", "c1", "c2", "c3")
COMPOSITES = ("sequence", "selector", "parallel", "conditional_selector")
# The last one looks again while its child runs.
DECORATORS = ("invert", "force_success", "force_failure", "retry", "repeat", "timeout", "cooldown", "guard")


class Grower:
    """Grows a tree of about so many nodes."""

    def __init__(self, chance: random.Random, *, looking: bool = True) -> None:
        self._chance = chance
        self._looking = looking  # whether nodes without memory, and guards, may grow
        self._steps = 0

    def node(self, size: int) -> dict[str, Any]:
        if size <= 1:
            return self._leaf()
        if self._chance.random() < 0.2:
            return self._decorated(size)
        return self._composite(size)

    def _composite(self, size: int) -> dict[str, Any]:
        kind = self._chance.choices(COMPOSITES, (5, 2, 3, 1))[0]
        children = [self.node(part) for part in self._parts(size - 1)]
        memory = not self._looking or self._chance.random() < 0.7
        match kind:
            case "parallel":
                thresholds: dict[str, Any] = {"success": self._chance.choice(["all", "any", len(children)])}
                if self._chance.random() < 0.5:
                    thresholds["failure"] = self._chance.randint(1, len(children))
                return {kind: {"children": children, **thresholds}}
            case "conditional_selector":
                branches = [{"when": self.flag(), "do": child} for child in children]
                if self._chance.random() < 0.7:
                    del branches[-1]["when"]
                return {kind: {"branches": branches, "memory": memory}}
        return {kind: {"children": children, "memory": memory}}

    def _decorated(self, size: int) -> dict[str, Any]:
        kind = self._chance.choice(DECORATORS if self._looking else DECORATORS[:-1])
        child = self.node(size - 1)
        options: dict[str, Any] = {
            "retry": {"attempts": self._chance.randint(1, 3), "delay": self._chance.choice(["0s", "2s"])},
            "repeat": {"times": self._chance.randint(1, 3), "until": self.flag()},
            "timeout": {"after": self._chance.choice(["5s", "60s"])},
            "cooldown": {"for": self._chance.choice(["1s", "60s"])},
            "guard": {"when": self.flag()},
        }.get(kind, {})
        if kind == "repeat" and self._chance.random() < 0.6:
            del options["until"]
        return {kind: {**options, "do": child}}

    def _leaf(self) -> dict[str, Any]:
        roll = self._chance.random()
        if roll < 0.15:
            return {"condition": self.flag()}
        if roll < 0.25:
            return {"wait": self._chance.choice(["1s", "3s", "30s"])}
        self._steps += 1
        return {"action": {"name": f"s{self._steps}", "agent": "a"}}

    def flag(self) -> str:
        return f"input.{self._chance.choice(FLAGS)}"

    def _parts(self, size: int) -> list[int]:
        parts = []
        while size > 0:
            part = min(size, self._chance.randint(1, max(1, size // 2 + 1)))
            parts.append(part)
            size -= part
        return parts


def tree_program(tree: dict[str, Any]) -> TreeProgram:
    definition = {
        "apiVersion": "agentflow/v1",
        "kind": "Workflow",
        "metadata": {"name": "random", "version": "1.0.0"},
        "spec": {"planner": "behavior_tree", "tree": without_what_is_refused(tree)},
    }
    program = compile_workflow(json.dumps(definition)).program
    assert isinstance(program, TreeProgram)
    return program


def without_what_is_refused(node: Any) -> Any:
    """The same tree, with the children moved last after which nothing could be reached."""
    ((kind, part),) = node.items()
    below = part if isinstance(part, dict) else {}
    if "do" in below:
        return {kind: {**part, "do": without_what_is_refused(part["do"])}}
    if "branches" in below:
        return {
            kind: {**part, "branches": [{**it, "do": without_what_is_refused(it["do"])} for it in part["branches"]]}
        }
    if "children" not in below:
        return node
    children = [without_what_is_refused(child) for child in part["children"]]
    last = {"selector": ("force_success", "wait"), "sequence": ("force_failure",)}.get(kind, ())
    kept = [child for child in children if next(iter(child)) not in last]
    enders = [child for child in children if next(iter(child)) in last]
    return {kind: {**part, "children": kept + enders[:1]}}


class Day:
    """What happens to a run: which outcome comes next, how it ends, and how the flags flip meanwhile."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def flags(self, tick: int) -> dict[str, bool]:
        chance = random.Random(f"{self._seed}:flags:{tick}")
        return {flag: chance.random() < 0.85 for flag in FLAGS}

    def happen(self, run: Play) -> None:
        """One outcome, chosen by the seed and the tick alone, so that a resumed run has the same day."""
        chance = random.Random(f"{self._seed}:{run.ticks}")
        run.input = self.flags(run.ticks)
        key = "#slice" if "#slice" in run.open and chance.random() < 0.9 else chance.choice(sorted(run.open))
        run.now += chance.randint(0, 2_000)
        due = [it for it, ask in run.open.items() if isinstance(ask, StartTimer) and ask.at_ms <= run.now]
        key = chance.choice(sorted(due)) if due else key
        if isinstance(run.open[key], RunStep) and chance.random() < 0.15:
            run.fail(key)
        else:
            run.ok(key, run.ticks)


def lived(program: TreeProgram, seed: int, *, ticks_max: int = 5_000, resume: bool = False) -> Play:
    day = Day(seed)
    run = Play(program, day.flags(0), resume=resume).begin()
    while run.ending is None and run.ticks < ticks_max:
        day.happen(run)
    assert run.ending is not None, f"still running after {ticks_max} ticks"
    return run


def ended_well(run: Play) -> bool:
    return isinstance(run.ending, Finish)
