"""What an execution has become: a fold over its events, and what follows from that alone.

`evolve` can neither fail nor choose. Nothing here grows with history: finished steps leave only their
newest output by name, so the thousandth step costs what the first one did.
"""

from enum import StrEnum
from typing import Any, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from agentflow.contracts.step import StepFault
from agentflow.execution.commands import Command, DispatchStep
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
    StepFailed,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
)
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId

_V = TypeVar("_V")


class Status(StrEnum):
    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class Waiting(msgspec.Struct, frozen=True):
    """A step between two attempts: the failed one's schedule, and when the next is due."""

    last: StepScheduled
    retry_at_ms: int


class ExecutionState(msgspec.Struct, frozen=True):
    version: int = 0
    status: Status = Status.NEW
    execution: ExecutionId = ExecutionId("")
    tenant: TenantId = TenantId("")
    workflow: WorkflowRef | None = None
    trace: TraceId = TraceId("")
    input: Any = None
    started_at_ms: int = 0
    ended_at_ms: int | None = None
    deadline_ms: int | None = None
    in_flight: dict[StepPath, StepScheduled] = {}
    waiting: dict[StepPath, Waiting] = {}
    visits: dict[str, int] = {}
    outputs: dict[str, Any] = {}
    output: Any = None
    fault: StepFault | None = None

    @property
    def ended(self) -> bool:
        return self.status is Status.COMPLETED or self.status is Status.FAILED


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    version = state.version + 1
    match event:
        case StepSucceeded():
            name = state.in_flight[event.path].name
            return replace(
                state,
                version=version,
                in_flight=_without(state.in_flight, event.path),
                outputs={**state.outputs, name: event.output},
            )
        case StepScheduled():
            return replace(
                state,
                version=version,
                in_flight={**state.in_flight, event.path: event},
                waiting=_without(state.waiting, event.path) if event.attempt > 1 else state.waiting,
                visits=(
                    {**state.visits, event.name: state.visits.get(event.name, 0) + 1}
                    if event.attempt == 1
                    else state.visits
                ),
            )
        case StepFailed():
            waiting = state.waiting
            if event.retry_at_ms is not None:
                waiting = {**waiting, event.path: Waiting(state.in_flight[event.path], event.retry_at_ms)}
            return replace(state, version=version, in_flight=_without(state.in_flight, event.path), waiting=waiting)
        case ExecutionStarted():
            return replace(
                state,
                version=version,
                status=Status.RUNNING,
                execution=event.execution,
                tenant=event.tenant,
                workflow=event.workflow,
                trace=event.trace,
                input=event.input,
                started_at_ms=event.at_ms,
                deadline_ms=event.deadline_ms,
            )
        case ExecutionCompleted():
            return replace(_closed(state, version, event.at_ms), status=Status.COMPLETED, output=event.output)
        case ExecutionFailed():
            return replace(_closed(state, version, event.at_ms), status=Status.FAILED, fault=event.fault)
        case _:
            assert_never(event)


def pending_commands(state: ExecutionState) -> tuple[Command, ...]:
    """What must have been sent if `state` is true: recovery and the sweeper send it again."""
    return tuple(dispatch(step) for step in state.in_flight.values())


def dispatch(step: StepScheduled) -> DispatchStep:
    return DispatchStep(
        path=step.path,
        name=step.name,
        attempt=step.attempt,
        agent=step.agent,
        tool=step.tool,
        input=step.input,
        timeout_ms=step.timeout_ms,
    )


def next_wakeup(state: ExecutionState) -> int | None:
    """When `TimeReached` is due next: a timer that needs no table, because the state implies it."""
    if state.ended:
        return None
    moments = [step.at_ms + step.timeout_ms for step in state.in_flight.values()]
    moments += [waiting.retry_at_ms for waiting in state.waiting.values()]
    if state.deadline_ms is not None:
        moments.append(state.deadline_ms)
    return min(moments, default=None)


def _closed(state: ExecutionState, version: int, at_ms: int) -> ExecutionState:
    return replace(state, version=version, ended_at_ms=at_ms, in_flight={}, waiting={})


def _without(mapping: dict[StepPath, _V], path: StepPath) -> dict[StepPath, _V]:
    return {key: value for key, value in mapping.items() if key != path}
