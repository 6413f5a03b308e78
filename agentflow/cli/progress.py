"""An execution as it happens, one line for each outcome of a step.

`StepLines` folds committed events into lines and is pure; `print_line` draws one. Fed from the API
by `af run`, `af demo` and `af dev`.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from agentflow.cli.durations import duration
from agentflow.clock import parse_rfc3339
from agentflow.execution.events import Event, StepFailed, StepScheduled, StepSucceeded
from agentflow.ids import StepPath
from agentflow.sdk.models import ExecutionEvent, LiveEvent

if TYPE_CHECKING:
    from rich.console import Console

Outcome = Literal["done", "again", "failed"]

_MARKS: dict[Outcome, tuple[str, str]] = {"done": ("✓", "green"), "again": ("↻", "yellow"), "failed": ("✗", "red")}


class StepLine(msgspec.Struct, frozen=True):
    outcome: Outcome
    step: str
    performer: str = ""  # the agent, with the tool it was asked to use if there was one
    took: str = ""
    note: str = ""


class StepLines:
    """Remembers when each step was sent, so that its outcome can say how long it took."""

    def __init__(self) -> None:
        self._sent: dict[StepPath, StepScheduled] = {}

    def line(self, event: Event) -> StepLine | None:
        match event:
            case StepScheduled():
                self._sent[event.path] = event
            case StepSucceeded():
                return self._outcome(event, "done", f"attempt {event.attempt}" if event.attempt > 1 else "")
            case StepFailed(retry_at_ms=None):
                return self._outcome(event, "failed", event.fault.message)
            case StepFailed():
                wait = duration(max(0, (event.retry_at_ms or 0) - event.at_ms))
                return self._outcome(event, "again", f"{event.fault.message} Again in {wait}.")
        return None

    def _outcome(self, event: StepSucceeded | StepFailed, outcome: Outcome, note: str) -> StepLine:
        sent = self._sent.pop(event.path, None)
        if sent is None:  # we began to listen after it was sent
            return StepLine(outcome, event.path, note=note)
        performer = f"{sent.agent}:{sent.tool}" if sent.tool else sent.agent
        return StepLine(outcome, event.path, performer, duration(event.at_ms - sent.at_ms), note)


def event_from_api(given: ExecutionEvent | LiveEvent) -> Event | None:
    """The event in the kernel's own words; None for one that only a newer version knows."""
    try:
        told = {**given.data, "type": given.type, "at_ms": parse_rfc3339(given.at)}
        event: Event = msgspec.convert(told, Event)
    except msgspec.ValidationError:
        return None
    return event


def print_line(console: "Console", line: StepLine, *, indent: str = "  ") -> None:
    from rich.text import Text

    mark, colour = _MARKS[line.outcome]
    console.print(
        Text.assemble(
            indent,
            (mark, colour),
            f" {line.step:<20} {line.performer:<20} {line.took:>8}",
            (f"  {line.note}" if line.note else "", "dim"),
        )
    )
