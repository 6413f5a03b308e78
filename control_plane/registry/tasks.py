"""Tasks that executions put before people, as lists show them: what a stretch of events does to them. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from agentflow.execution import events as happened
from agentflow.execution.events import Event
from agentflow.ids import ExecutionId, StepPath

OPEN, ANSWERED, WITHDRAWN = "open", "answered", "withdrawn"
TASK_EVENTS = (happened.TaskOpened, happened.TaskAnswered, happened.TaskHalted)
_ENDS = (
    happened.ExecutionCompleted,
    happened.ExecutionFailed,
    happened.ExecutionCancelled,
    happened.ExecutionTerminated,
)


TaskPlace = tuple[int, ExecutionId, StepPath]  # in the order of a list: when it was opened, and which it is


class OpenTask(msgspec.Struct, frozen=True):
    """One line of a list of what waits for people."""

    execution: ExecutionId
    path: StepPath
    workflow: str
    opened_at_ms: int
    task: dict[str, Any]  # title, instructions, form, assignees: as the definition says

    @property
    def place(self) -> TaskPlace:
        return self.opened_at_ms, self.execution, self.path


class TaskLine(msgspec.Struct, frozen=True):
    path: StepPath
    version: int  # of the event that opened it
    opened_at_ms: int
    status: str = OPEN
    ended_at_ms: int | None = None


class TaskEnd(msgspec.Struct, frozen=True):
    path: StepPath
    status: str
    ended_at_ms: int


def task_changes(
    events: Iterable[tuple[int, Event]], open_before: Iterable[StepPath] = ()
) -> tuple[list[TaskLine], list[TaskEnd]]:
    """The tasks these events open, as they stand after all of them; and the ends of those that were open before."""
    opened: dict[StepPath, TaskLine] = {}
    ended: dict[StepPath, TaskEnd] = {}

    def end(path: StepPath, status: str, at_ms: int) -> None:
        line = opened.get(path)
        if line is None:
            ended.setdefault(path, TaskEnd(path, status, at_ms))
        elif line.ended_at_ms is None:
            opened[path] = replace(line, status=status, ended_at_ms=at_ms)

    for version, event in events:
        match event:
            case happened.TaskOpened():
                opened[event.path] = TaskLine(event.path, version, event.at_ms)
            case happened.TaskAnswered():
                end(event.path, ANSWERED, event.at_ms)
            case happened.TaskHalted():
                end(event.path, WITHDRAWN, event.at_ms)
            case _ if isinstance(event, _ENDS):
                for path in (*open_before, *opened):  # an execution's end takes what is open along, without a word
                    end(path, WITHDRAWN, event.at_ms)
    return list(opened.values()), list(ended.values())
