"""An execution as a tree of spans, made from its events: itself, its steps, their attempts, what it waited for. Pure.

Nothing of this is recorded while it runs. Ids follow from what a span is about, so they are the same whenever and
wherever it is looked at, and a child execution's span can name its parent's without asking.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution import events as happened
from agentflow.execution.events import Event
from agentflow.ids import ExecutionId

SpanStatus = Literal["unset", "ok", "error"]


class Span(msgspec.Struct, kw_only=True):
    """`ended_at_ms` is None while it is under way."""

    span_id: str
    parent_span_id: str | None
    kind: str
    name: str
    execution: ExecutionId
    started_at_ms: int
    ended_at_ms: int | None = None
    status: SpanStatus = "unset"
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)


def span_id(execution: str, kind: str, about: str = "") -> str:
    """A W3C span id: 16 hex digits."""
    return hashlib.sha256(f"{execution}/{kind}/{about}".encode()).hexdigest()[:16]


def spans(events: Iterable[Event]) -> list[Span]:
    """In the order in which they began. The first one is the execution's own."""
    making = _Making()
    for event in events:
        making.take(event)
    return making.made


class _Making:
    def __init__(self) -> None:
        self.made: list[Span] = []
        self._open: dict[tuple[str, str], Span] = {}
        self._execution = ExecutionId("")

    def take(self, event: Event) -> None:
        match event:
            case happened.ExecutionStarted():
                self._started(event)
            case happened.StepScheduled():
                self._scheduled(event)
            case happened.StepSucceeded():
                self._attempt_over(event.path, event.attempt, event, worker=event.worker)
                self._close("step", event.path, event.at_ms)
            case happened.StepFailed():
                self._attempt_over(event.path, event.attempt, event, event.fault, worker=event.worker)
                if event.retry_at_ms is None:
                    self._close("step", event.path, event.at_ms, event.fault)
            case happened.StepDoubted():
                self._attempt_over(event.path, event.attempt, event, event.fault)
            case happened.DoubtSettled():
                if event.resolution != "retry":
                    fault = StepFault("in_doubt", event.reason) if event.resolution == "fail" else None
                    self._close("step", event.path, event.at_ms, fault)
            case happened.StepHalted():
                self._halt("step", event.path, event.at_ms)
            case _:
                self._waiting_or_life(event)

    def _waiting_or_life(self, event: Event) -> None:
        at_ms = event.at_ms
        match event:
            case happened.TimerStarted():
                self._begin("timer", event.key, event.key, at_ms)
            case happened.TimerFired():
                self._close("timer", event.key, at_ms)
            case happened.SignalAwaited():
                self._begin("signal", event.key, event.name, at_ms)
            case happened.SignalReceived() if event.key is not None:
                self._close("signal", event.key, at_ms)
            case happened.ChildStarted():
                self._begin("child", event.path, event.workflow, at_ms, {"path": event.path})
            case happened.ChildEnded():
                self._close("child", event.path, at_ms, event.fault)
            case happened.TaskOpened():
                self._begin("task", event.path, str(event.task.get("title") or event.path), at_ms)
            case happened.TaskAnswered():
                self._close("task", event.path, at_ms)
            case happened.TimerHalted() | happened.SignalHalted():
                self._halt("timer" if isinstance(event, happened.TimerHalted) else "signal", event.key, at_ms)
            case happened.ChildHalted() | happened.TaskHalted():
                self._halt("child" if isinstance(event, happened.ChildHalted) else "task", event.path, at_ms)
            case happened.ExecutionCompleted():
                self._end(at_ms, None)
            case happened.ExecutionFailed():
                self._end(at_ms, event.fault)
            case happened.ExecutionCancelled() | happened.ExecutionTerminated():
                self._end(at_ms, StepFault("cancelled", event.reason))
            case happened.ExecutionRetried() if self.made:
                own = self.made[0]
                own.ended_at_ms, own.status = None, "unset"

    def _started(self, event: happened.ExecutionStarted) -> None:
        self._execution = event.execution
        parent = event.parent
        own = Span(
            span_id=span_id(event.execution, "execution"),
            parent_span_id=None if parent is None else span_id(parent.execution, "child", parent.path),
            kind="execution",
            name=f"{event.workflow.name}@{event.workflow.version}",
            execution=event.execution,
            started_at_ms=event.at_ms,
            attributes={"workflow": event.workflow.name, "version": event.workflow.version},
        )
        self.made.append(own)

    def _scheduled(self, event: happened.StepScheduled) -> None:
        known = {"agent": event.agent, **({} if event.tool is None else {"tool": event.tool})}
        if ("step", event.path) not in self._open:
            self._begin("step", event.path, event.name, event.at_ms, {"path": event.path, **known})
        step = self._open["step", event.path]
        about = f"{event.path}#{event.attempt}"
        self._begin("attempt", about, f"{event.name} #{event.attempt}", event.at_ms, dict(known), step.span_id)

    def _begin(
        self,
        kind: str,
        about: str,
        name: str,
        at_ms: int,
        attributes: dict[str, Any] | None = None,
        parent: str | None = None,
    ) -> None:
        span = Span(
            span_id=span_id(self._execution, kind, about),
            parent_span_id=parent or span_id(self._execution, "execution"),
            kind=kind,
            name=name,
            execution=self._execution,
            started_at_ms=at_ms,
            attributes={} if attributes is None else attributes,
        )
        self._open[kind, about] = span
        self.made.append(span)

    def _attempt_over(
        self,
        path: str,
        attempt: int,
        event: happened.StepSucceeded | happened.StepFailed | happened.StepDoubted,
        fault: StepFault | None = None,
        worker: str | None = None,
    ) -> None:
        about = f"{path}#{attempt}"
        span = self._open.get(("attempt", about))
        if span is not None and worker is not None:
            span.attributes["worker"] = worker
        if span is not None and isinstance(event, happened.StepSucceeded):
            span.attributes |= {"run_ms": event.finished_at_ms - event.started_at_ms}
        self._close("attempt", about, event.at_ms, fault)

    def _close(self, kind: str, about: str, at_ms: int, fault: StepFault | None = None) -> None:
        span = self._open.pop((kind, about), None)
        if span is not None:
            span.ended_at_ms, span.status = at_ms, "ok" if fault is None else "error"
            if fault is not None:
                span.attributes |= {"error_code": fault.code, "error_message": fault.message}

    def _halt(self, kind: str, about: str, at_ms: int) -> None:
        halted = [key for key in self._open if key == (kind, about) or _is_attempt_of(key, kind, about)]
        for key in halted:
            span = self._open.pop(key)
            span.ended_at_ms = at_ms
            span.attributes["halted"] = True

    def _end(self, at_ms: int, fault: StepFault | None) -> None:
        for kind, about in list(self._open):
            self._halt(kind, about, at_ms)
        own = self.made[0]
        own.ended_at_ms, own.status = at_ms, "ok" if fault is None else "error"
        if fault is not None:
            own.attributes |= {"error_code": fault.code, "error_message": fault.message}


def _is_attempt_of(key: tuple[str, str], kind: str, about: str) -> bool:
    return kind == "step" and key[0] == "attempt" and key[1].rpartition("#")[0] == about
