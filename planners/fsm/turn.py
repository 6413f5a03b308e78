"""One answer in the making: what the program will remember, and what it asks for.

The heart applies an answer only when it is complete, so what is remembered here is read back through here. Keys of
the memory begin with a mark for what they hold; the rest is the place (see `Frame`):
`@` the state a nested machine is in, `=` an output, `#` a count of visits, `+` how far a fan or loop has come, `*` its
items, `.` the result of a branch or item, `u` what may have to be undone, `!` that it is being undone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agentflow.execution.program import Intent, Intents, Remember, RunView
from planners.fsm.table import Frame

MISSING = object()


class Turn:
    __slots__ = ("forgot", "hops", "intents", "over", "run", "vars", "written")

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.written: dict[str, Any] = {}
        self.forgot: dict[str, None] = {}
        self.vars: dict[str, Any] = {}
        self.intents: list[Intent] = []
        self.over = False
        self.hops = 0

    def recall(self, key: str, default: Any = None) -> Any:
        if key in self.written:
            return self.written[key]
        return default if key in self.forgot else self.run.memory.get(key, default)

    def remember(self, key: str, value: Any) -> None:
        self.forgot.pop(key, None)
        self.written[key] = value

    def forget(self, key: str) -> None:
        self.written.pop(key, None)
        if key in self.run.memory:
            self.forgot[key] = None

    def all_vars(self) -> Mapping[str, Any]:
        return {**self.run.vars, **self.vars} if self.vars else self.run.vars

    def answer(self) -> Intents:
        if self.written or self.forgot or self.vars:
            return (Remember(self.written, tuple(self.forgot), self.vars), *self.intents)
        return tuple(self.intents)


class Outputs(Mapping[str, Any]):
    """`steps.<name>.output` as seen from a frame: its own machine's first, then those around it."""

    __slots__ = ("_frame", "_turn")

    def __init__(self, turn: Turn, frame: Frame) -> None:
        self._turn = turn
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        frame: Frame | None = self._frame
        while frame is not None:
            state = frame.machine.states.get(name)
            if state is not None:
                found = self._turn.recall(f"={frame.place(state)}", MISSING)
                if found is MISSING and not frame.path and not state.keeps_output:
                    return self._turn.run.outputs[name]
                if found is MISSING:
                    break
                return found
            frame = frame.parent
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        frame: Frame | None = self._frame
        while frame is not None:
            yield from (name for name in frame.machine.states if name in self)
            frame = frame.parent

    def __len__(self) -> int:
        return sum(1 for _ in self)
