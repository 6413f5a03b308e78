"""The question put to a planner: given what a run knows, what should happen next?

A planner compiles a definition into a `Program`. Its answers are data (`Intent`), so the rules in `decide`
are the same for state machines, behaviour trees and model-made plans.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry, WorkflowRef
from agentflow.ids import AgentName


class RunView(msgspec.Struct, frozen=True):
    """What a program may look at."""

    input: Any
    outputs: Mapping[str, Any]  # newest output of each finished step, by name
    workflow: WorkflowRef


class StepOutcome(msgspec.Struct, frozen=True):
    """How a step ended, after all its attempts."""

    name: str
    output: Any = None
    fault: StepFault | None = None


class RunStep(msgspec.Struct, frozen=True):
    name: str
    agent: AgentName
    tool: str | None
    input: Any
    timeout_ms: int
    retry: Retry


class Finish(msgspec.Struct, frozen=True):
    output: Any


class Fail(msgspec.Struct, frozen=True):
    fault: StepFault


Intent = RunStep | Finish | Fail
Intents = tuple[Intent, ...]


class Program(Protocol):
    """Pure and total: the same view and outcome always give the same intents, and nothing is raised."""

    def begin(self, run: RunView) -> Intents: ...

    def advance(self, run: RunView, outcome: StepOutcome) -> Intents: ...
