"""What a program was told when something happened: the outcome in an event, read from the state before it. Pure.

For whoever goes through a history again: to explain it (`planners.tracing`) or to go on from it (`fork`).
"""

from collections.abc import Iterator

from agentflow.execution import events as happened
from agentflow.execution.events import Answered, Event
from agentflow.execution.evolve import settled_fault
from agentflow.execution.state import ExecutionState, Status, key_of
from agentflow.ids import StepPath


def heard(before: ExecutionState, event: Event) -> Iterator[Answered]:
    """In a pause nothing, and afterwards all that was held."""
    if isinstance(event, happened.ExecutionResumed):
        yield from before.held.values()
    if before.status is not Status.RUNNING:
        return
    match event:
        case happened.StepSucceeded():
            yield Answered("step", key_of(event.path), event.path, _name(before, event.path), event.output)
        case happened.StepFailed() if event.retry_at_ms is None:
            yield Answered("step", key_of(event.path), event.path, _name(before, event.path), fault=event.fault)
        case happened.DoubtSettled() if event.resolution == "done":
            yield Answered("step", key_of(event.path), event.path, _name(before, event.path), event.output)
        case happened.DoubtSettled() if event.resolution == "fail":
            fault = settled_fault(event)
            yield Answered("step", key_of(event.path), event.path, _name(before, event.path), fault=fault)
        case happened.TimerFired():
            yield Answered("timer", event.key)
        case happened.SignalReceived() if event.key is not None:
            yield Answered("signal", event.key, value=event.payload)
        case happened.SignalTaken():
            payload = next((one.payload for one in before.kept if one.id == event.id), None)
            yield Answered("signal", event.key, value=payload)
        case happened.ChildEnded():
            yield Answered("child", key_of(event.path), event.path, "", event.output, event.fault)
        case happened.TaskAnswered():
            yield Answered("task", key_of(event.path), event.path, value=event.answer)


def _name(before: ExecutionState, path: StepPath) -> str:
    """Of a step that is under way, or in doubt: a lost result may turn up."""
    flight = before.in_flight.get(path)
    return before.doubts[path].step.name if flight is None else flight.name
