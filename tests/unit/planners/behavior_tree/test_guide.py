"""Every example of the guide compiles, runs, and does what the text beside it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.program import AwaitSignal, RunStep
from agentflow.workflow.tree import KINDS
from planners.kinds import compile_workflow
from tests.unit.planners.behavior_tree.play import Play, definition

GUIDE = (Path(__file__).parents[4] / "docs" / "guides" / "behaviour-trees.md").read_text()
SECTIONS = {text.splitlines()[0]: text for text in GUIDE.split("\n## ")[1:]}
NO = StepFault("boom", "No.")


def example(heading: str) -> str:
    (written,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[heading], re.DOTALL)
    if written.startswith("tree:"):
        tree, subtrees = written.removeprefix("tree:\n").split("subtrees:\n")
        return definition(
            tree.replace("\n  ", "\n").removeprefix("  "), subtrees.replace("\n  ", "\n").removeprefix("  ")
        )
    return definition(written, spec="  timeout: 30d\n")


class Live:
    """A run whose steps are answered by plain functions until only time and other people are left."""

    def __init__(self, text: str, given: Any, agents: dict[str, Any]) -> None:
        self.run = Play(compile_workflow(text).program, given)
        self._agents = agents
        self.run.begin()
        self.work()

    def work(self) -> Play:
        while self.run.ending is None and (steps := self._answerable()):
            key, answer = steps[0]
            if isinstance(answer, StepFault):
                self.run.fail(key, answer)
            else:
                self.run.ok(key, answer(self.run.open[key].input) if isinstance(answer, Callable) else answer)
        return self.run

    def then(self, key: str, payload: Any = None) -> "Live":
        self.run.ok(key, payload)
        self.work()
        return self

    def signal(self, name: str, payload: Any = None) -> "Live":
        (key,) = [key for key, ask in self.run.open.items() if isinstance(ask, AwaitSignal) and ask.signal == name]
        return self.then(key, payload)

    def _answerable(self) -> list[tuple[str, Any]]:
        steps = {key: ask for key, ask in self.run.open.items() if isinstance(ask, RunStep)}
        return [(key, self._agents[ask.name]) for key, ask in steps.items() if ask.name in self._agents]

    @property
    def asked(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.run.asked]


def live(heading: str, given: Any = None, **agents: Any) -> Live:
    return Live(example(heading), given, agents)


def test_no_kind_of_node_is_missing_from_the_guide():
    shown = set(re.findall(r"^[\s{-]*([a-z_]+):", GUIDE, re.MULTILINE)) | set(re.findall(r"[{] ?([a-z_]+):", GUIDE))
    assert set(KINDS) <= shown


def test_every_example_is_run_below():
    headings = {name for name, text in SECTIONS.items() if "```yaml" in text}
    source = Path(__file__).read_text()

    assert [name for name in headings if f'"{name}"' not in source] == []


@pytest.mark.parametrize(
    ("severity", "fix", "asked", "output"),
    [(5, 1, ["probe", "fix"], 1), (1, 1, ["probe", "escalate"], 2), (5, NO, ["probe", "fix", "fix", "escalate"], 2)],
)
def test_the_example_at_the_top(severity, fix, asked, output):
    (text,) = re.findall(r"```yaml\n(apiVersion.*?)```", GUIDE, re.DOTALL)
    told = Live(text, {"host": "h"}, {"probe": {"severity": severity}, "fix": fix, "escalate": 2})

    assert (told.asked, told.run.output) == (asked, output)


def test_action():
    told = live("action", {"ticket": "t"}, search={"articles": [1]})

    assert (told.run.vars, told.run.output) == ({"found": [1]}, {"articles": [1]})


def test_condition():
    assert live("condition", classify={"confidence": 0.9}).run.output == {"confidence": 0.9}
    assert live("condition", classify={"confidence": 0.1}).run.fault.code == "condition"
    assert live("condition", classify={}).run.fault.code == "expression_error"


def test_set():
    assert live("set", {"name": "Mara"}, mailer=lambda given: given).run.output == {"text": "Hello Mara"}


def test_sequence():
    assert live("sequence", build={"id": 7}, test=lambda given: given, release="done").asked == [
        "build",
        "test",
        "release",
    ]
    assert live("sequence", build={"id": 7}, test=NO).run.fault == NO


def test_selector():
    told = live("selector", {"q": "why"}, cheap=NO, costly=lambda given: given)

    assert told.run.output == {"q": "why", "because": "boom"}


def test_without_memory():
    told = live("Without memory")
    assert told.run.steps == ["routine"]

    told.signal("escalated")
    assert (told.run.steps, told.run.halted) == (["urgent"], ["tree/0/routine"])
    assert live("Without memory", routine=1).run.output == {"0": 1}


def test_parallel():
    assert live("parallel", one=1, two=NO, three=3).run.output == {"one": 1, "three": 3}
    assert live("parallel", one=NO, two=NO).run.fault == NO


@pytest.mark.parametrize(("status", "does"), [("down", "fix"), ("slow", "scale"), ("fine", "observe")])
def test_conditional_selector(status, does):
    assert live("conditional_selector", probe={"status": status}, **{does: 1}).asked == ["probe", does]


def test_invert_and_force():
    heading = "invert, force_success, force_failure"

    assert live(heading, {"dry_run": True}, report=1).run.fault.code == "forced_failure"
    assert live(heading, {"dry_run": False}, announce=NO, deploy="done").run.output == "done"


def test_retry():
    told = live("retry", draft={"text": "t"}, review=NO)
    assert told.asked == ["draft", "review"]

    told.then("tree").then("tree")
    assert (told.asked, told.run.fault) == (["draft", "review"] * 3, NO)


def test_repeat():
    scores = iter([0.5, 0.95])

    assert live("repeat", improve=lambda _: {"score": next(scores)}).run.output == {"score": 0.95}
    assert live("repeat", improve={"score": 0}).run.fault.code == "bound_reached"


def test_timeout():
    told = live("timeout", other="in time").then("tree/0")

    assert (told.run.halted, told.run.output) == (["tree/0/fast"], "in time")


def test_cooldown():
    told = live("cooldown", alert=1)
    for _ in range(3):
        told.then("tree/0/1")

    assert told.asked == ["alert"]
    assert told.run.ending is not None


def test_guard():
    told = live("guard", clean_up=1)
    told.signal("stop")

    assert told.run.halted == ["tree/0/long"]
    assert told.run.ending is not None


def test_waiting_for_others():
    heading = "wait, signal, human, subworkflow"
    told = live(heading).then("tree/0/0").signal("ready", {"by": "Ada"})
    assert told.run.open["tree/0/2"].task["title"] == "Ship it, Ada?"

    told.then("tree/0/2", {"yes": True}).then("tree/0/4", {"total": 3})
    assert told.run.vars == {"by": "Ada", "ship": True, "total": 3}
    late = live(heading)
    late.run.ok("tree")
    assert late.run.fault.code == "timeout"


def test_subtree():
    told = live("subtree", {"hosts": ["a", "b"]}, **{"first/probe": {"up": True}, "second/probe": {"up": False}})

    assert told.run.asked == ["tree/first/check/probe", "tree/second/check/probe"]
    assert told.run.fault.code == "condition"
