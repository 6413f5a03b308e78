"""The plan of an execution as people look at it: its steps and how far each has come, read from its events. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from agentflow.execution.events import Event, StepFailed, StepHalted, StepScheduled, StepSucceeded
from agentflow.ids import StepPath


class PlanStep(msgspec.Struct, frozen=True):
    path: StepPath
    number: int  # the version of the event that first asked for it: steps are shown in this order
    name: str
    agent: str
    tool: str | None
    status: str  # scheduled, waiting (to be tried again), succeeded, failed, halted
    attempt: int
    scheduled_at_ms: int
    worker: str | None = None
    fault: str | None = None
    ended_at_ms: int | None = None


def step_of(event: Event) -> StepPath | None:
    """The step an event is about, if it is about one."""
    return event.path if isinstance(event, StepScheduled | StepSucceeded | StepFailed | StepHalted) else None


def advance(steps: Mapping[StepPath, PlanStep], events: Iterable[tuple[int, Event]]) -> dict[StepPath, PlanStep]:
    """The steps that `events` (version and event, in order) change, as they are afterwards."""
    changed: dict[StepPath, PlanStep] = {}
    for version, event in events:
        path = step_of(event)
        if path is None:
            continue
        before = changed.get(path) or steps.get(path)
        after = _after(before, version, event)
        if after is not None:
            changed[path] = after
    return changed


def _after(before: PlanStep | None, version: int, event: Event) -> PlanStep | None:
    match event:
        case StepScheduled():
            number = version if before is None else before.number
            return PlanStep(
                event.path, number, event.name, event.agent, event.tool, "scheduled", event.attempt, event.at_ms
            )
        case _ if before is None:
            return None  # nothing was ever asked of it
        case StepSucceeded():
            return replace(before, status="succeeded", worker=event.worker, fault=None, ended_at_ms=event.at_ms)
        case StepFailed(retry_at_ms=None):
            return replace(
                before, status="failed", worker=event.worker, fault=event.fault.code, ended_at_ms=event.at_ms
            )
        case StepFailed():
            return replace(before, status="waiting", worker=event.worker, fault=event.fault.code)
        case StepHalted():
            return replace(before, status="halted", ended_at_ms=event.at_ms)
        case _:
            return None
