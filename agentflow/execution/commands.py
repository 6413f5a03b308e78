"""What to do once the events are committed. Each command carries the key that makes doing it twice harmless.

Within an execution a path names one occurrence of a step, a child or a task for ever, so execution and path (and the
attempt, of a step) are that key. Cancelling is best effort: whoever still reports is not listened to.
"""

from typing import Any

import msgspec

from agentflow.ids import AgentName, StepPath


class DispatchStep(msgspec.Struct, frozen=True):
    """Send a step to its agent. Key: execution, path and attempt."""

    path: StepPath
    name: str
    attempt: int
    agent: AgentName
    tool: str | None
    input: Any
    timeout_ms: int
    in_doubt: bool = False
    straight: bool = False


class CancelStep(msgspec.Struct, frozen=True):
    """Tell the agent that nobody waits for this step any more. Key: execution, path and attempt."""

    path: StepPath
    attempt: int
    agent: AgentName


class StartChild(msgspec.Struct, frozen=True):
    """Start an execution of another workflow, whose end comes back as `ChildEnded`. Key: execution and path."""

    path: StepPath
    workflow: str
    version: str  # a semver constraint; what it resolves to is pinned by the child's own start
    input: Any


class CancelChild(msgspec.Struct, frozen=True):
    path: StepPath


class OpenTask(msgspec.Struct, frozen=True):
    """Put a task before people; their answer comes back as `TaskAnswered`. Key: execution and path."""

    path: StepPath
    task: dict[str, Any]


class CloseTask(msgspec.Struct, frozen=True):
    """Take an unanswered task away again."""

    path: StepPath


Command = DispatchStep | CancelStep | StartChild | CancelChild | OpenTask | CloseTask
