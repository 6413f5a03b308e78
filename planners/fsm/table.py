"""The compiled form of a machine: a table made once, in which `walk` looks things up. Nothing in it changes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry
from agentflow.ids import AgentName
from planners.expressions.evaluate import Expression
from planners.expressions.templates import Template


class Way(msgspec.Struct, frozen=True):
    """One way on: taken when its condition holds, or when it has none."""

    to: str
    condition: Expression | None = None


class Route(msgspec.Struct, frozen=True):
    """Where faults lead: those of `codes`, those that begin with one of `prefixes`, or all when there is neither."""

    to: str
    codes: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def takes(self, fault: StepFault) -> bool:
        if not self.codes and not self.prefixes:
            return True
        return fault.code in self.codes or fault.code.startswith(self.prefixes)


class Work(msgspec.Struct, frozen=True):
    """What an agent or a tool is to do."""

    agent: AgentName
    tool: str | None
    input: Template
    timeout_ms: int
    retry: Retry


class Wait(msgspec.Struct, frozen=True):
    duration_ms: int | None = None
    until: Template | None = None
    signal: str | None = None


class Fan(msgspec.Struct, frozen=True):
    """Several bodies at once: the branches of a parallel state, or one body for each item of a map."""

    bodies: Mapping[str, "Machine"]  # by branch; of a map, the one under `do`
    over: Template | None = None  # None: branches
    item: str = ""
    concurrency: int = 0  # 0: all at once
    needed: int = 0  # branches that must succeed
    tolerated: int | None = 0  # items that may fail; None: any number


class Loop(msgspec.Struct, frozen=True):
    body: "Machine"
    bound: int
    while_: Expression | None = None
    for_: Template | None = None
    item: str = ""
    break_: Expression | None = None


class Child(msgspec.Struct, frozen=True):
    workflow: str
    version: str
    input: Template


class FsmState(msgspec.Struct, frozen=True):
    name: str  # empty for a step that is written directly where a machine could stand
    label: str  # what its step is called
    kind: str | None = None  # None: a final state with nothing to do
    final: bool = False
    work: Work | None = None
    wait: Wait | None = None
    fan: Fan | None = None
    loop: Loop | None = None
    child: Child | None = None
    task: Template | None = None
    failure: tuple[str, Template] | None = None  # code and message
    output: Template | None = None  # of `succeed`
    result: Template | None = None
    vars: tuple[tuple[str, Template], ...] = ()
    ways: tuple[Way, ...] = ()
    routes: tuple[Route, ...] = ()
    timeout_ms: int | None = None  # of what is not a step; a step's is its work's
    compensation: Work | None = None
    max_visits: int | None = None

    @property
    def keeps_output(self) -> bool:
        """Whether its output is the program's to remember; that of a plain step is kept with the run."""
        return self.kind != "step" or self.result is not None

    def body(self, slot: str) -> "Machine | None":
        if self.fan is not None:
            return self.fan.bodies.get("do" if self.fan.over is not None else slot)
        return self.loop.body if self.loop is not None and slot == "do" else None


class Machine:
    """States by name. `plain`: nothing but steps whose outputs the run keeps, so there is nothing to remember."""

    __slots__ = ("direct", "initial", "plain", "states")

    def __init__(self, initial: str, states: dict[str, FsmState]) -> None:
        self.initial = initial
        self.states = states
        self.direct = "" in states
        self.plain = all(
            state.kind in ("step", None) and not state.keeps_output for state in states.values() if state.kind
        )


class Frame:
    """A machine at work in one place. `path` is where: empty at the top, `review/2` for the third item of `review`."""

    __slots__ = ("holder", "locals", "machine", "parent", "path", "slot")

    def __init__(
        self,
        machine: Machine,
        path: str = "",
        parent: "Frame | None" = None,
        holder: FsmState | None = None,
        slot: str = "",
        locals: Mapping[str, Any] | None = None,
    ) -> None:
        self.machine = machine
        self.path = path
        self.parent = parent
        self.holder = holder  # the state of `parent` that this is inside of
        self.slot = slot
        self.locals = {} if locals is None else locals

    def place(self, state: FsmState) -> str:
        if not self.path:
            return state.name
        return f"{self.path}/{state.name}" if state.name else self.path
