"""Another execution out of the recorded beginning of one: which events it keeps, and what it goes on from. Pure.

A fork has the original's events up to a place as its own history, so it stands where the original stood; what was
open there begins anew, and everything after that happens for real. The original is only read. Called by the control
plane for `POST /executions/{id}/fork`; `decide` records what is made here.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec

from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.execution import events as happened
from agentflow.execution.events import Answered, Event
from agentflow.execution.evolve import evolve
from agentflow.execution.hearing import heard
from agentflow.execution.state import ExecutionState
from agentflow.ids import StepPath, WorkerId

# Who answered a step whose outcome somebody wrote by hand.
BY_HAND = WorkerId("by hand")

# What a program asked for. A run of these is an answer of it, and is kept whole.
_ANSWERS = (
    happened.StepScheduled,
    happened.StepHalted,
    happened.ProgramMoved,
    happened.TimerStarted,
    happened.TimerHalted,
    happened.SignalAwaited,
    happened.SignalTaken,
    happened.SignalHalted,
    happened.ChildStarted,
    happened.ChildHalted,
    happened.TaskOpened,
    happened.TaskHalted,
)
_LEAVES = happened.StepSucceeded | happened.StepFailed | happened.ExecutionForked
_StepOutcome = happened.StepSucceeded | happened.StepFailed | happened.DoubtSettled
_Outcome = _StepOutcome | happened.ChildEnded | happened.TaskAnswered


class NoSuchPlace(Exception):
    """The history has nothing to fork at; says what is missing."""


class Written(msgspec.Struct, frozen=True):
    """An outcome that somebody wrote in place of the recorded one."""

    value: Any


class Kept(msgspec.Struct, frozen=True):
    """What a fork has in common with its original, and the outcome that its program has still to hear."""

    events: tuple[Event, ...]
    version: int  # how many of the original's events these are
    at_ms: int  # the moment of the last one
    answered: Answered | None = None

    @property
    def workspace(self) -> WorkspaceLeft | None:
        """As the last of its calls left it: calls may end in another order than their outcomes were recorded."""
        left = [event.workspace for event in self.events if isinstance(event, _LEAVES) and event.workspace is not None]
        return max(reversed(left), key=lambda one: one.number, default=None)


def kept_before(events: Sequence[Event], path: StepPath) -> Kept:
    """Up to where a step, a child or a task was first asked for: it is open, and begins anew."""
    end = next((at for at, event in enumerate(events, 1) if _begins(event, path)), None)
    if end is None:
        raise NoSuchPlace(f"it never came to `{path}`")
    while end < len(events) and isinstance(events[end], _ANSWERS) and not _is_repeat(events[end]):
        end += 1
    return Kept(tuple(events[:end]), end, events[end - 1].at_ms)


def kept_after(events: Sequence[Event], path: StepPath, written: Written | None = None) -> Kept:
    """Up to the last outcome of a step, a child or a task, with what is `written` in its place."""
    found = [(at, event) for at, event in enumerate(events) if isinstance(event, _Outcome) and _ends(event, path)]
    if not found:
        raise NoSuchPlace(f"`{path}` has no outcome in it")
    before, outcome = found[-1]
    state = reduce(evolve, events[:before], ExecutionState())
    if written is not None:
        outcome = _by_hand(state, outcome, written.value)
    told = next(heard(state, outcome), None)  # in a pause it is held, with others
    return Kept((*events[:before], outcome), before + (written is None), outcome.at_ms, told)


def _begins(event: Event, path: StepPath) -> bool:
    if isinstance(event, happened.StepScheduled):
        return event.path == path and event.attempt == 1
    return isinstance(event, happened.ChildStarted | happened.TaskOpened) and event.path == path


def _is_repeat(event: Event) -> bool:
    """Another attempt follows from time, or from a retry: not from the program."""
    return isinstance(event, happened.StepScheduled) and event.attempt > 1


def _ends(event: _Outcome, path: StepPath) -> bool:
    if isinstance(event, happened.StepFailed) and event.retry_at_ms is not None:
        return False
    if isinstance(event, happened.DoubtSettled) and event.resolution == "retry":
        return False
    return event.path == path


def _by_hand(before: ExecutionState, outcome: _Outcome, value: Any) -> _Outcome:
    at_ms, path, left = outcome.at_ms, outcome.path, None
    match outcome:
        case happened.ChildEnded():
            return happened.ChildEnded(at_ms, path, value)
        case happened.TaskAnswered():
            return happened.TaskAnswered(at_ms, path, value)
        case happened.DoubtSettled():
            attempt = before.doubts[path].step.attempt
        case _:
            attempt, left = outcome.attempt, outcome.workspace  # what was done to its files was done
    return happened.StepSucceeded(at_ms, path, attempt, value, BY_HAND, at_ms, at_ms, left)
