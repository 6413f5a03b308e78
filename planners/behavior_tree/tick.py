"""One tick in the making: what the tree remembers, with the changes of this tick on top, and what it asks for.

Made for each outcome and thrown away with the answer, so it is the only thing here that changes. `program` makes
it, nodes work on it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from agentflow import limits
from agentflow.execution.program import (
    AskHuman,
    AwaitSignal,
    Halt,
    Intent,
    Outcome,
    Remember,
    RunStep,
    RunView,
    StartChild,
    StartTimer,
)
from planners.behavior_tree.result import JOINED, Setting
from planners.expressions.scope import Facts

Ask = RunStep | StartTimer | AwaitSignal | StartChild | AskHuman
_GONE = object()


class Placed(Protocol):
    """Of a node, as much as a tick needs to know."""

    @property
    def at(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def looks(self) -> bool: ...


class Yielding(NamedTuple):
    """Where the outputs are that the run does not keep itself: the same for every tick of a program."""

    kept: Mapping[str, str]  # of named signals, people and children: what their payload is remembered under
    joined: Callable[["Tick", str], dict[str, Any]]  # what a parallel yields, by its path


class Tick:
    def __init__(self, run: RunView, outcome: Outcome | None, dirty: list[int], yielding: Yielding) -> None:
        self.run = run
        self.outputs = _Kept(run.outputs, self, yielding.kept) if yielding.kept else run.outputs
        self._join = yielding.joined
        self._joined: dict[str, dict[str, Any] | None] = {}
        self.at_ms = run.at_ms
        self.outcome = outcome
        self.dirty = sorted(dirty)  # the places that have something to do in this tick
        self.vars: Mapping[str, Any] = run.vars
        self.vars_changed = False
        self.cuts: list[int] = []  # where the tick had to stop, to go on in the next
        self._visits = 0
        self.over = None if outcome is None else outcome.key  # what is open no longer
        self._before: dict[str, Any] = {}  # what was read of the run's memory
        self._changed: dict[str, Any] = {}
        self._set: dict[str, Any] = {}
        self._intents: list[Intent | None] = []
        self._asked: dict[str, int] = {}

    # What is remembered.

    def value(self, path: str) -> Any:
        value = self._changed.get(path)
        if value is None:
            return self._remembered(path)
        return None if value is _GONE else value

    def status(self, path: str) -> str | None:
        value = self.value(path)
        return value[0] if type(value) is not str and value is not None else value

    def put(self, path: str, value: Any) -> None:
        if self._remembered(path) != value:
            self._changed[path] = value
        elif path in self._changed:
            del self._changed[path]

    def forget(self, path: str) -> None:
        if self._remembered(path) is not None:
            self._changed[path] = _GONE
        elif path in self._changed:
            del self._changed[path]

    def _remembered(self, path: str) -> Any:
        if path in self._before:
            return self._before[path]
        value = self._before[path] = self.run.memory.get(path)
        return value

    def set_vars(self, values: Mapping[str, Any]) -> None:
        changed = {name: value for name, value in values.items() if name not in self.vars or self.vars[name] != value}
        if changed:
            self._set |= changed
            self.vars = {**self.vars, **changed}
            self.vars_changed = True

    # Where to go.

    def concerns(self, node: Placed) -> bool:
        """Whether a running node must be visited in this tick."""
        if node.looks:
            return True  # a condition may have changed its mind, whatever it was that happened
        at = bisect_left(self.dirty, node.at)
        return at < len(self.dirty) and self.dirty[at] < node.end

    def places(self, node: Placed) -> list[int]:
        """The places at and below a node that have something to do."""
        return self.dirty[bisect_left(self.dirty, node.at) : bisect_left(self.dirty, node.end)]

    def spend(self) -> None:
        self._visits += 1

    @property
    def exhausted(self) -> bool:
        return self._visits >= limits.TREE_NODES_PER_TICK

    def cut(self, node: Placed) -> None:
        if node.at not in self.cuts:
            insort(self.cuts, node.at)

    def uncut(self, node: Placed) -> None:
        """A cut that is never taken up: its node was halted."""
        if self.cuts:
            self.cuts = [at for at in self.cuts if not node.at <= at < node.end]

    def look_again(self) -> None:
        """Begin another pass over the same tree, because a condition may have changed its mind."""
        self.outcome = None
        self.dirty, self.cuts = self.cuts, []
        self.vars_changed = False

    # What is asked for.

    def ask(self, ask: Ask) -> None:
        self._asked[ask.key] = len(self._intents)
        self._intents.append(ask)

    def give_up(self, key: str) -> None:
        """Halt what is open under a key; what was asked for in this very tick is simply not asked for."""
        asked = self._asked.pop(key, None)
        if asked is not None:
            self._intents[asked] = None
        elif key != self.over:
            self._intents.append(Halt(key))

    def intents(self) -> Iterator[Intent]:
        if remember := self._remember():
            yield remember
        yield from (intent for intent in self._intents if intent is not None)

    def _remember(self) -> Remember | None:
        if not self._changed and not self._set:
            return None
        memory = {path: value for path, value in self._changed.items() if value is not _GONE}
        return Remember(memory, tuple(path for path in self._changed if path not in memory), self._set)

    # What expressions see.

    def output(self, yields: str | None) -> Any:
        """The output that a result names."""
        if yields is None or yields[0] != JOINED:
            return None if yields is None else self.outputs.get(yields)
        if yields not in self._joined:
            self._joined[yields] = self._join(self, yields[1:]) or None
        return self._joined[yields]

    def facts(self, setting: Setting, output: Any = _GONE) -> Facts:
        outputs = self.outputs
        if output is _GONE:
            output = self.output(setting.last)
        if setting.prefix:
            outputs = _Within(outputs, setting.prefix)
        run = self.run
        return Facts(run.input, output, outputs, run.workflow, setting.error, self.vars, run.env, setting.locals)


class _Kept(Mapping[str, Any]):
    """The outputs of steps, and what came to those who waited for something else."""

    def __init__(self, outputs: Mapping[str, Any], tick: Tick, kept: Mapping[str, str]) -> None:
        self._outputs = outputs
        self._tick = tick
        self._kept = kept

    def __getitem__(self, name: str) -> Any:
        if name not in self._kept:
            return self._outputs[name]
        held = self._tick.value(self._kept[name])
        if held is None:
            raise KeyError(name)
        return held[0]

    def __iter__(self) -> Iterator[str]:
        yield from self._outputs
        yield from (name for name, key in self._kept.items() if self._tick.value(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Within(Mapping[str, Any]):
    """The outputs of the steps of one subtree, by the names they have inside."""

    def __init__(self, outputs: Mapping[str, Any], prefix: str) -> None:
        self._outputs = outputs
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        return self._outputs[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return f"{self._prefix}{name}" in self._outputs

    def __iter__(self) -> Iterator[str]:
        size = len(self._prefix)
        return (name[size:] for name in self._outputs if name.startswith(self._prefix) and "/" not in name[size:])

    def __len__(self) -> int:
        return sum(1 for _ in self)
