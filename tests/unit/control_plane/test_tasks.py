"""What events do to the list of tasks for people (`control_plane.registry.tasks`)."""

from agentflow.contracts.step import StepFault
from agentflow.execution.events import (
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    TaskAnswered,
    TaskHalted,
    TaskOpened,
)
from agentflow.ids import StepPath
from control_plane.registry.tasks import TaskEnd, TaskLine, task_changes

A, B = StepPath("a"), StepPath("b")


def numbered(*events: Event, first: int = 5) -> list[tuple[int, Event]]:
    return list(enumerate(events, start=first))


def test_a_task_is_open_until_it_is_answered_or_withdrawn() -> None:
    opened, ended = task_changes(
        numbered(TaskOpened(10, A, {}), TaskOpened(11, B, {}), TaskAnswered(20, A, 1), TaskHalted(21, B))
    )

    assert opened == [TaskLine(A, 5, 10, "answered", 20), TaskLine(B, 6, 11, "withdrawn", 21)]
    assert ended == []


def test_what_was_opened_before_is_ended_by_its_path_alone() -> None:
    opened, ended = task_changes(numbered(TaskAnswered(20, A, 1)), open_before=[A, B])

    assert (opened, ended) == ([], [TaskEnd(A, "answered", 20)])


def test_the_end_of_an_execution_takes_every_open_task_along() -> None:
    for end in (ExecutionCompleted(30, {}), ExecutionFailed(30, StepFault("x", "y")), ExecutionCancelled(30, "")):
        opened, ended = task_changes(numbered(TaskOpened(10, B, {}), TaskAnswered(20, A, 1), end), open_before=[A])

        assert opened == [TaskLine(B, 5, 10, "withdrawn", 30)]
        assert ended == [TaskEnd(A, "answered", 20)]  # answered in time, and told once
