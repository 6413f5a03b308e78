"""The question put to a planner: given what a run knows, what should happen next?

A planner compiles a definition into a `Program`. Its answers are data (`Intent`), so the rules in `decide`
are the same for state machines, behaviour trees and model-made plans. Whatever a program waits for it names
with a `key` of its own; the outcome comes back under the same key.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry, WorkflowRef
from agentflow.ids import AgentName


class RunView(msgspec.Struct, frozen=True):
    """What a program may look at. Time and chance are those of the message being decided, and are recorded with it."""

    input: Any
    outputs: Mapping[str, Any]  # newest output of each finished step, by name
    workflow: WorkflowRef
    vars: Mapping[str, Any]
    memory: Mapping[str, Any]  # what the program itself chose to remember: small JSON values by key
    at_ms: int
    chance: float
    env: Mapping[str, str] = {}  # what the deployment let workflows see when this run began


# What a program is told. Each is the end of something it asked for; what was halted is never reported.


class StepOutcome(msgspec.Struct, frozen=True):
    """How a step ended, after all its attempts."""

    key: str
    name: str
    output: Any = None
    fault: StepFault | None = None


class TimerFired(msgspec.Struct, frozen=True):
    key: str


class SignalReceived(msgspec.Struct, frozen=True):
    key: str
    payload: Any


class ChildOutcome(msgspec.Struct, frozen=True):
    key: str
    output: Any = None
    fault: StepFault | None = None


class TaskAnswered(msgspec.Struct, frozen=True):
    key: str
    answer: Any


Outcome = StepOutcome | TimerFired | SignalReceived | ChildOutcome | TaskAnswered


# What a program may ask for.


class RunStep(msgspec.Struct, frozen=True):
    """`key` is the step's place in the program (`review/2/lint`); its output is kept under `name`."""

    key: str
    name: str
    agent: AgentName
    tool: str | None
    input: Any
    timeout_ms: int
    retry: Retry


class StartTimer(msgspec.Struct, frozen=True):
    """Due at once when `at_ms` is not after the view's: how a program asks to be called again (time-slicing)."""

    key: str
    at_ms: int


class AwaitSignal(msgspec.Struct, frozen=True):
    """Signals that came before anybody waited are kept, and taken in the order they came."""

    key: str
    signal: str


class StartChild(msgspec.Struct, frozen=True):
    key: str
    workflow: str
    version: str  # a semver constraint, resolved and pinned when the child starts
    input: Any


class AskHuman(msgspec.Struct, frozen=True):
    key: str
    task: dict[str, Any]  # title, instructions, form (JSON Schema), assignees: as the definition says


class Halt(msgspec.Struct, frozen=True):
    """Give up whatever is open under this key: a step, a timer, a signal, a child, a task."""

    key: str


class Remember(msgspec.Struct, frozen=True):
    """Change the program's memory and the run's `vars`; only what changed is recorded."""

    memory: dict[str, Any] = {}
    forget: tuple[str, ...] = ()
    vars: dict[str, Any] = {}


class Finish(msgspec.Struct, frozen=True):
    output: Any


class Fail(msgspec.Struct, frozen=True):
    fault: StepFault


Intent = RunStep | StartTimer | AwaitSignal | StartChild | AskHuman | Halt | Remember | Finish | Fail
Intents = tuple[Intent, ...]


class Program(Protocol):
    """Pure and total: the same view and outcome always give the same intents, and nothing is raised.

    All that a program knows of its own past is in `run.memory`, so it may be asked by another process next time.
    Intents are followed in order; a view never shows what intents of the same answer will change.
    """

    def begin(self, run: RunView) -> Intents: ...

    def advance(self, run: RunView, outcome: Outcome) -> Intents: ...


@runtime_checkable
class Attentive(Protocol):
    """A program that may answer to a change of the run's variables from outside, though nothing it waits for ended.

    Asked after the change, and once more when a paused run goes on. An empty answer means that nothing follows.
    """

    def noticed(self, run: RunView) -> Intents: ...


@runtime_checkable
class Compensating(Protocol):
    """A program that undoes its work when the run is cancelled or out of time.

    Asked once, after everything open was halted. What it asks for runs as usual; its `Finish` or `Fail` then closes
    the run as cancelled or timed out. An empty answer means that there is nothing to undo.
    """

    def unwind(self, run: RunView, why: StepFault) -> Intents: ...


@runtime_checkable
class Adoptive(Protocol):
    """A program that a run may be moved to which another version of it has begun (see `moving`)."""

    def standing(self, memory: Mapping[str, Any]) -> Iterable[str]:
        """The places that a run is in the middle of, by what it remembers."""
        ...

    def kind_at(self, place: str) -> str | None:
        """What stands at a place, or is asked for under a key; None where the program has nothing there."""
        ...

    def variables(self) -> Mapping[str, Any]:
        """Those it begins with, and their first values."""
        ...

    def knows(self, variable: str) -> bool: ...
