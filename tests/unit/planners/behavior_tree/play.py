"""A run of a program without the platform around it: what it asks for is kept, what the test says comes back.

Plays the part of `decide` with as little as possible (a dictionary each for memory, vars, outputs and what is open),
and refuses whatever a program must never do: ask for a key that is open, or halt one that is not.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.execution.program import (
    AskHuman,
    AwaitSignal,
    ChildOutcome,
    Fail,
    Finish,
    Halt,
    Intents,
    Outcome,
    Program,
    Remember,
    RunStep,
    RunView,
    SignalReceived,
    StartChild,
    StartTimer,
    StepOutcome,
    TaskAnswered,
    TimerFired,
)
from agentflow.ids import WorkflowId
from planners.kinds import compile_workflow

REF = WorkflowRef(WorkflowId("wf_1"), "t", "1.0.0", "digest")
BOOM = StepFault("boom", "It went wrong.")
HEAD = (
    "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: t, version: 1.0.0}\nspec:\n  planner: behavior_tree\n"
)


def definition(tree: str, subtrees: str = "", spec: str = "") -> str:
    text = f"{HEAD}{spec}  tree:\n{_indented(tree)}"
    return f"{text}  subtrees:\n{_indented(subtrees)}" if subtrees else text


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip("\n").splitlines())


def compiled(tree: str, subtrees: str = "", spec: str = "  timeout: 30d\n") -> Any:
    return compile_workflow(definition(tree, subtrees, spec)).program


class Play:
    """One run. `asked` is every step ever asked for, by key; `open` what is waited for now."""

    def __init__(self, program: Program, given: Any = None, *, now: int = 1_000, resume: bool = False) -> None:
        self.program = program
        self.input = given
        self.now = now
        self.memory: dict[str, Any] = {}
        self.vars: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.open: dict[str, Any] = {}
        self.asked: list[str] = []
        self.halted: list[str] = []
        self.ending: Finish | Fail | None = None
        self.ticks = 0
        # With this, everything the program remembers goes through JSON before every tick, as in another process.
        self._resume = resume
        self.watch: Callable[[Play], None] = lambda _: None

    def begin(self) -> "Play":
        self._follow(self.program.begin(self.view()))
        return self

    def view(self) -> RunView:
        memory = msgspec.json.decode(msgspec.json.encode(self.memory)) if self._resume else self.memory
        return RunView(self.input, dict(self.outputs), REF, dict(self.vars), memory, self.now, 0.5)

    def tell(self, outcome: Outcome) -> "Play":
        assert outcome.key in self.open, f"nothing is open under {outcome.key}: {sorted(self.open)}"
        del self.open[outcome.key]
        self._follow(self.program.advance(self.view(), outcome))
        return self

    def ok(self, name: str, output: Any = None) -> "Play":
        """The step, signal, child, task or timer of that name (or key) ends well."""
        key, ask = self.find(name)
        match ask:
            case RunStep():
                self.outputs[ask.name] = output
                return self.tell(StepOutcome(key, ask.name, output))
            case StartTimer():
                self.now = max(self.now, ask.at_ms)
                return self.tell(TimerFired(key))
            case AwaitSignal():
                return self.tell(SignalReceived(key, output))
            case StartChild():
                return self.tell(ChildOutcome(key, output))
            case _:
                return self.tell(TaskAnswered(key, output))

    def fail(self, name: str, fault: StepFault = BOOM) -> "Play":
        key, ask = self.find(name)
        if isinstance(ask, StartChild):
            return self.tell(ChildOutcome(key, None, fault))
        return self.tell(StepOutcome(key, ask.name, None, fault))

    def find(self, name: str) -> tuple[str, Any]:
        found = [key for key, ask in self.open.items() if name in (key, getattr(ask, "name", None))]
        found = found or [key for key in self.open if key.endswith(f"/{name}")]
        assert len(found) == 1, f"{name} is not the one thing open: {sorted(self.open)}"
        return found[0], self.open[found[0]]

    @property
    def steps(self) -> list[str]:
        """The names of the steps that run now, in the order they were asked for."""
        return [ask.name for ask in self.open.values() if isinstance(ask, RunStep)]

    @property
    def output(self) -> Any:
        assert isinstance(self.ending, Finish), self.ending
        return self.ending.output

    @property
    def fault(self) -> StepFault:
        assert isinstance(self.ending, Fail), self.ending
        return self.ending.fault

    def _follow(self, intents: Intents) -> None:
        self.ticks += 1
        assert self.ending is None
        for intent in intents:
            assert self.ending is None, "an ending is the last word"
            match intent:
                case Remember():
                    assert not set(intent.memory) & set(intent.forget)
                    assert all(self.memory.get(key) != value for key, value in intent.memory.items()), "unchanged"
                    assert all(key in self.memory for key in intent.forget), "was not there"
                    self.memory = {k: v for k, v in self.memory.items() if k not in intent.forget} | intent.memory
                    self.vars |= intent.vars
                case Halt():
                    assert intent.key in self.open, f"halted what is not open: {intent.key}"
                    del self.open[intent.key]
                    self.halted.append(intent.key)
                case Finish() | Fail():
                    self.ending = intent
                case RunStep() | StartTimer() | AwaitSignal() | StartChild() | AskHuman():
                    assert intent.key not in self.open, f"asked twice: {intent.key}"
                    self.open[intent.key] = intent
                    if isinstance(intent, RunStep):
                        self.asked.append(intent.key)
        if self.ending is None:
            assert self.open, "neither ended nor waiting for anything"
        else:
            assert not self.open, f"left running: {sorted(self.open)}"
        self.watch(self)
