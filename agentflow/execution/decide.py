"""The rules of an execution: what follows from what has just arrived.

Pure: the same state, message and program always give the same decision, so a stored log replays to the
same end. Called by the orchestrator's commit loop, the replayer and the simulation.
"""

from typing import Any, assert_never

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.errors import Bug
from agentflow.execution.commands import Command
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
    Retry,
    StepFailed,
    StepScheduled,
    StepSucceeded,
)
from agentflow.execution.messages import ExecutionMessage, Stamp, Start, StepReported, TimeReached
from agentflow.execution.program import Fail, Finish, Intents, Program, RunStep, RunView, StepOutcome
from agentflow.execution.state import ExecutionState, dispatch, evolve
from agentflow.ids import StepPath, WorkerId


class Decision(msgspec.Struct, frozen=True):
    """Commit `events` first, then perform `commands`. `state` is the old one with the events folded in."""

    state: ExecutionState
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()


def decide(state: ExecutionState, message: ExecutionMessage, program: Program) -> Decision:
    if state.ended:
        return Decision(state)  # a latecomer; the story is over
    draft = _Draft(state, program, message.stamp)
    match message:
        case Start():
            if state.version == 0:
                draft.start(message)
        case StepReported():
            flight = state.in_flight.get(message.path)
            if flight is not None and flight.attempt == message.attempt:
                draft.report(flight, message)
            # else a repeat, or an attempt already given up on: it changes nothing
        case TimeReached():
            draft.time_reached()
        case _:
            assert_never(message)
    return draft.decision()


def retry_delay_ms(retry: Retry, attempt: int, chance: float) -> int:
    """How long to wait after the failed `attempt`: exponential, capped, with full jitter if asked."""
    delay = float(retry.max_ms)
    if attempt <= 64:  # beyond that the power would only overflow on its way to the cap
        delay = min(delay, retry.initial_ms * retry.multiplier ** (attempt - 1))
    return int(delay * chance) if retry.jitter else int(delay)


class _Draft:
    """A decision in the making: each event is folded at once, so that later rules see it."""

    def __init__(self, state: ExecutionState, program: Program, stamp: Stamp) -> None:
        self._state = state
        self._program = program
        self._stamp = stamp
        self._events: list[Event] = []
        self._commands: list[Command] = []

    def decision(self) -> Decision:
        if self._state.ended:
            self._commands.clear()  # whatever an earlier rule scheduled has no one left to report to
        return Decision(self._state, tuple(self._events), tuple(self._commands))

    def start(self, message: Start) -> None:
        at_ms = self._stamp.at_ms
        self._record(
            ExecutionStarted(
                at_ms=at_ms,
                execution=message.execution,
                tenant=message.tenant,
                workflow=message.workflow,
                input=message.input,
                trace=message.trace,
                deadline_ms=None if message.timeout_ms is None else at_ms + message.timeout_ms,
            )
        )
        self._follow(self._program.begin(self._view()))

    def report(self, flight: StepScheduled, message: StepReported) -> None:
        if message.fault is not None:
            self._attempt_failed(flight, message.fault, message.worker)
            return
        self._record(
            StepSucceeded(
                at_ms=self._stamp.at_ms,
                path=flight.path,
                attempt=flight.attempt,
                output=message.output,
                worker=message.worker,
                started_at_ms=message.started_at_ms,
                finished_at_ms=message.finished_at_ms,
            )
        )
        self._advance(flight.name, output=message.output)

    def time_reached(self) -> None:
        now = self._stamp.at_ms
        if self._state.deadline_ms is not None and now >= self._state.deadline_ms:
            self._record(
                ExecutionFailed(now, StepFault("execution_timeout", "The execution took longer than its timeout."))
            )
            return
        for flight in tuple(self._state.in_flight.values()):
            if now >= flight.at_ms + flight.timeout_ms and not self._state.ended:
                late = f"No result within {flight.timeout_ms} ms."
                self._attempt_failed(flight, StepFault("timeout", late, retryable=True), None)
        for waiting in tuple(self._state.waiting.values()):
            if now >= waiting.retry_at_ms and not self._state.ended:
                self._schedule(msgspec.structs.replace(waiting.last, at_ms=now, attempt=waiting.last.attempt + 1))

    def _attempt_failed(self, flight: StepScheduled, fault: StepFault, worker: WorkerId | None) -> None:
        retry_at_ms = None
        if fault.retryable and flight.attempt < flight.retry.max_attempts:
            retry_at_ms = self._stamp.at_ms + retry_delay_ms(flight.retry, flight.attempt, self._stamp.chance)
        self._record(StepFailed(self._stamp.at_ms, flight.path, flight.attempt, fault, retry_at_ms, worker))
        if retry_at_ms is None:
            self._advance(flight.name, fault=fault)

    def _advance(self, name: str, *, output: Any = None, fault: StepFault | None = None) -> None:
        self._follow(self._program.advance(self._view(), StepOutcome(name, output, fault)))

    def _follow(self, intents: Intents) -> None:
        for intent in intents:
            match intent:
                case RunStep():
                    self._schedule(
                        StepScheduled(
                            at_ms=self._stamp.at_ms,
                            path=self._new_path(intent.name),
                            name=intent.name,
                            attempt=1,
                            agent=intent.agent,
                            input=intent.input,
                            timeout_ms=intent.timeout_ms,
                            tool=intent.tool,
                            retry=intent.retry,
                        )
                    )
                case Finish():
                    self._record(ExecutionCompleted(self._stamp.at_ms, intent.output))
                    return
                case Fail():
                    self._record(ExecutionFailed(self._stamp.at_ms, intent.fault))
                    return
                case _:
                    assert_never(intent)
        if not self._state.in_flight and not self._state.waiting:
            raise Bug("A program neither ended an execution nor left anything to wait for.")

    def _schedule(self, step: StepScheduled) -> None:
        self._record(step)
        self._commands.append(dispatch(step))

    def _record(self, event: Event) -> None:
        self._events.append(event)
        self._state = evolve(self._state, event)

    def _new_path(self, name: str) -> StepPath:
        """A step's identity. A state that is visited again is another step: `check`, `check~2`, …"""
        visit = self._state.visits.get(name, 0) + 1
        return StepPath(name if visit == 1 else f"{name}~{visit}")

    def _view(self) -> RunView:
        if self._state.workflow is None:
            raise Bug("An execution was advanced before it started.")
        return RunView(self._state.input, self._state.outputs, self._state.workflow)
