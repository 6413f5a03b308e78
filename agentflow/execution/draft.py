"""A decision in the making: each event is folded at once, so that later rules see it.

Knows how to record, how to follow what a program wants, and how to give things up. Which rule applies to which
message is `decide`'s.
"""

from collections import deque
from typing import Any, assert_never

import msgspec

from agentflow import limits
from agentflow.contracts.step import WORKER_LOST, WORKER_STOPPED, StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.errors import Bug
from agentflow.execution import claims, commands, program
from agentflow.execution import events as happened
from agentflow.execution.commands import Command
from agentflow.execution.events import Answered, Event, Retry, StepScheduled
from agentflow.execution.evolve import evolve
from agentflow.execution.frozen_map import Reading
from agentflow.execution.messages import ClaimStep, Stamp, StepReported
from agentflow.execution.program import Intent, Intents, Outcome, Program, RunView
from agentflow.execution.state import (
    ExecutionState,
    Status,
    dispatch,
    key_of,
    newest_path,
    open_task,
    path_of,
    start_child,
)
from agentflow.ids import StepPath, WorkerId

_End = (
    happened.ExecutionCompleted | happened.ExecutionFailed | happened.ExecutionCancelled | happened.ExecutionTerminated
)


class Decision(msgspec.Struct, frozen=True):
    """Commit `events` first, then perform `commands`. `state` is the old one with the events folded in."""

    state: ExecutionState
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()


def retry_delay_ms(retry: Retry, attempt: int, chance: float) -> int:
    """How long to wait after the failed `attempt`: exponential, capped, with full jitter if asked."""
    delay = float(retry.max_ms)
    if attempt <= 64:  # beyond that the power would only overflow on its way to the cap
        delay = min(delay, retry.initial_ms * retry.multiplier ** (attempt - 1))
    return int(delay * chance) if retry.jitter else int(delay)


class Draft:
    def __init__(self, state: ExecutionState, program: Program, stamp: Stamp) -> None:
        self.state = state
        self.program = program
        self.now = stamp.at_ms
        self.stops = True  # at breakpoints
        self.past = ""  # the breakpoint that it goes on from
        self.left: WorkspaceLeft | None = None  # by the attempt that has failed
        self._chance = stamp.chance
        self.hears = stamp.hears
        self._straight = stamp.straight
        self._events: list[Event] = []
        self._commands: dict[StepPath, Command] = {}  # one a path: what is begun and given up at once is never sent
        self._ready: deque[Answered] = deque()

    def decision(self) -> Decision:
        return Decision(self.state, tuple(self._events), tuple(self._commands.values()))

    def record(self, event: Event) -> None:
        self._events.append(event)
        self.state = evolve(self.state, event)

    # What the program hears and wants.

    def begin(self) -> None:
        stops, self.stops = self.stops, False  # there is no outcome yet that could be heard again later
        self._follow(self.program.begin(self.view()))
        self.stops = stops
        self._settle()

    def tell(self, *answered: Answered) -> None:
        """Put outcomes to the program, and whatever becomes ready by its answers. While paused they are held."""
        if self.state.paused_at_ms is None:
            self._ready += answered
            self._settle()

    def notice(self) -> None:
        """Let the program look at variables that somebody has changed."""
        if self.state.status is not Status.RUNNING or self.state.ending is not None:
            return
        if isinstance(self.program, program.Attentive):
            self._follow(self.program.noticed(self.view()))
            self._settle()

    def unwind(self, why: StepFault) -> None:
        """Let the program undo what it did. Without anything to undo, this is the end."""
        if isinstance(self.program, program.Compensating):
            self._follow(self.program.unwind(self.view(), why))
            self._settle()
        else:
            self._close_ending(why)

    def _settle(self) -> None:
        while self._ready and not self.state.ended and self.state.paused_at_ms is None:
            answered = self._ready.popleft()
            self._follow(self.program.advance(self.view(), outcome_of(answered)), answered)

    def _follow(self, intents: Intents, answered: Answered | None = None) -> None:
        failure = next((intent for intent in intents if isinstance(intent, program.Fail)), None)
        if failure is not None:
            # The rest of the answer would only be torn down; and a retry must find the memory as it was.
            self._finish(happened.ExecutionFailed(self.now, failure.fault, answered))
            return
        if len(intents) > limits.INTENTS_PER_ANSWER_MAX:
            wants = f"{len(intents)} things were to be done at once; {limits.INTENTS_PER_ANSWER_MAX} are possible."
            self._finish(happened.ExecutionFailed(self.now, StepFault("too_much_at_once", wants), answered))
            return
        if self.state.breakpoints and (key := self._breakpoint(intents)) is not None:
            held = (*(() if answered is None else (answered,)), *self._ready)
            self._ready.clear()
            self.record(happened.ExecutionPaused(self.now, "", f"Stopped before `{key}`.", key, held))
            return
        for intent in intents:
            self._follow_one(intent)
            if self.state.ended:
                return
        if self._ready or self.state.waits:
            return
        if self.state.ending is None:
            raise Bug("A program neither ended an execution nor left anything to wait for.")
        self._close_ending(self.state.ending)

    def _breakpoint(self, intents: Intents) -> str | None:
        """Where to stop instead of following an answer: what it asks for, or begins to remember, has a breakpoint."""
        if not self.stops or self.state.ending is not None:
            return None
        wanted = {key for key in self.state.breakpoints if key != self.past}
        for intent in intents:
            if isinstance(intent, program.Remember):
                for key in intent.memory:
                    if key in wanted and key not in self.state.memory:
                        return key
            elif not isinstance(intent, program.Halt | program.Finish | program.Fail) and intent.key in wanted:
                return intent.key
        return None

    def _follow_one(self, intent: Intent) -> None:
        match intent:
            case program.RunStep():
                self._schedule(
                    StepScheduled(
                        at_ms=self.now,
                        path=self._new_path(intent.key),
                        name=intent.name,
                        attempt=1,
                        agent=intent.agent,
                        input=intent.input,
                        timeout_ms=intent.timeout_ms,
                        tool=intent.tool,
                        retry=intent.retry,
                    )
                )
            case program.Remember():
                if intent.memory or intent.forget or intent.vars:
                    self.record(happened.ProgramMoved(self.now, intent.memory, intent.forget, intent.vars))
            case program.StartTimer():
                if intent.key in self.state.timers:
                    raise Bug(f"A program started the timer `{intent.key}` twice.")
                self.record(happened.TimerStarted(self.now, intent.key, intent.at_ms))
            case program.AwaitSignal():
                self._await(intent)
            case program.StartChild():
                self.start_child(intent.key, intent.workflow, intent.version, intent.input)
            case program.AskHuman():
                self.open_task(intent.key, intent.task)
            case program.Halt():
                self._halt(intent.key)
            case program.Finish():
                self._finish(happened.ExecutionCompleted(self.now, intent.output))
            case program.Fail():
                self._finish(happened.ExecutionFailed(self.now, intent.fault))
            case _:
                assert_never(intent)

    def view(self) -> RunView:
        state = self.state
        if state.workflow is None:
            raise Bug("An execution was advanced before it started.")
        return RunView(
            input=state.input,
            outputs=Reading(state.outputs),
            workflow=state.workflow,
            vars=state.vars,
            memory=Reading(state.memory),
            at_ms=self.now,
            chance=self._chance,
            env=state.env,
        )

    # Steps and their attempts.

    def attempt_failed(self, flight: StepScheduled, fault: StepFault, worker: WorkerId | None) -> None:
        claim = self.state.claimed.get(flight.path) if self.state.claimed else None
        if claim is not None:
            claims.attempt_failed(self, flight, fault, worker, claim)
            return
        if fault.code in (WORKER_LOST, WORKER_STOPPED):
            lost = flight.lost + (fault.code == WORKER_LOST)
            if lost <= limits.STEP_LOST_MAX:
                self.hand_on(flight, lost, fault, worker)
                return
            fault = StepFault(WORKER_LOST, f"{lost} workers fell silent with this step, one after the other.")
        self.fail_or_retry(flight, fault, worker)

    def fail_or_retry(
        self, flight: StepScheduled, fault: StepFault, worker: WorkerId | None, *, claim_over: bool = False
    ) -> None:
        """By the step's own rule. Its last failure is told to the program."""
        retry_at_ms = None
        tried = flight.attempt - flight.first_attempt + 1
        if fault.retryable and tried < flight.retry.max_attempts:
            retry_at_ms = self.now + retry_delay_ms(flight.retry, tried, self._chance)
        self.record(self._failed(flight, fault, retry_at_ms, worker, claim_over=claim_over))
        if retry_at_ms is None:
            key = key_of(flight.path)
            self.tell(Answered("step", key, flight.path, flight.name, fault=fault))

    def hand_on(
        self,
        flight: StepScheduled,
        lost: int,
        fault: StepFault,
        worker: WorkerId | None,
        *,
        claim_over: bool = False,
    ) -> None:
        """The attempt ended with its worker, not by its own fault: the next one follows and its rule counts neither."""
        self.record(self._failed(flight, fault, self.now, worker, claim_over=claim_over))
        if self.state.paused_at_ms is None:
            self.try_again(msgspec.structs.replace(flight, first_attempt=flight.first_attempt + 1, lost=lost))

    def _failed(
        self,
        flight: StepScheduled,
        fault: StepFault,
        retry_at_ms: int | None,
        worker: WorkerId | None,
        *,
        claim_over: bool,
    ) -> happened.StepFailed:
        return happened.StepFailed(
            self.now, flight.path, flight.attempt, fault, retry_at_ms, worker, claim_over, self.left
        )

    def try_again(self, last: StepScheduled) -> None:
        self._schedule(msgspec.structs.replace(last, at_ms=self.now, attempt=last.attempt + 1))

    def try_afresh(self, last: StepScheduled) -> None:
        """Another attempt with all the attempts that its rule allows before it."""
        self.try_again(msgspec.structs.replace(last, first_attempt=last.attempt + 1))

    def claim(self, message: ClaimStep) -> None:
        claims.claim(self, message)

    def settle(self, path: StepPath, answer: Any) -> None:
        claims.settle(self, path, answer)

    def turned_up(self, message: StepReported) -> None:
        claims.turned_up(self, message)

    def _schedule(self, step: StepScheduled) -> None:
        doubtful = bool(self.state.claimed) and step.path in self.state.claimed
        straight = step.agent == self._straight
        if doubtful != step.in_doubt or straight != step.straight:
            step = msgspec.structs.replace(step, in_doubt=doubtful, straight=straight)
        self.record(step)
        self._commands[step.path] = dispatch(step)

    def _new_path(self, key: str) -> StepPath:
        if "~" in key:
            raise Bug(f"A program used the key `{key}`, but `~` marks a repeat.")
        visit = self.state.visits.get(key) or 0
        if visit and self._is_open(path_of(key, visit)):
            raise Bug(f"A program asked for `{key}` while it was open.")
        return path_of(key, visit + 1)

    def _is_open(self, path: StepPath) -> bool:
        state = self.state
        if path in state.in_flight or path in state.waiting or path in state.children or path in state.tasks:
            return True
        return path in state.doubts

    # Children, tasks, signals.

    def start_child(self, key: str, workflow: str, version: str, input: Any) -> None:
        child = happened.ChildStarted(self.now, self._new_path(key), workflow, version, input)
        self.record(child)
        self._commands[child.path] = start_child(child)

    def open_task(self, key: str, task: dict[str, Any]) -> None:
        opened = happened.TaskOpened(self.now, self._new_path(key), task)
        self.record(opened)
        self._commands[opened.path] = open_task(opened)

    def signal(self, id: str, name: str, payload: Any) -> None:
        waiting = [(one.since_version, key) for key, one in self.state.awaited.items() if one.name == name]
        if not waiting:
            if len(self.state.kept) < limits.SIGNALS_KEPT_MAX:
                self.record(happened.SignalReceived(self.now, id, name, payload))
            return
        _, key = min(waiting)
        self.record(happened.SignalReceived(self.now, id, name, payload, key))
        self.tell(Answered("signal", key, value=payload))

    def _await(self, intent: program.AwaitSignal) -> None:
        if intent.key in self.state.awaited:
            raise Bug(f"A program awaited a signal under `{intent.key}` twice.")
        kept = next((signal for signal in self.state.kept if signal.name == intent.signal), None)
        if kept is None:
            self.record(happened.SignalAwaited(self.now, intent.key, intent.signal))
            return
        self.record(happened.SignalTaken(self.now, kept.id, intent.key))
        self._ready.append(Answered("signal", intent.key, value=kept.payload))

    def take_kept_signals(self) -> None:
        """Signals that came while nobody could wait for them go to whoever waits again, in their order."""
        told = []
        for key, awaited in sorted(self.state.awaited.items(), key=lambda one: one[1].since_version):
            kept = next((signal for signal in self.state.kept if signal.name == awaited.name), None)
            if kept is not None:
                self.record(happened.SignalTaken(self.now, kept.id, key))
                told.append(Answered("signal", key, value=kept.payload))
        self.tell(*told)

    # Giving up and ending.

    def _halt(self, key: str) -> None:
        state = self.state
        path = newest_path(state, key)
        if path in state.in_flight or path in state.waiting or path in state.doubts:
            self._give_up_step(path)
        if path in state.children:
            self.record(happened.ChildHalted(self.now, path))
            self._withdraw(path, commands.CancelChild(path))
        if path in state.tasks:
            self.record(happened.TaskHalted(self.now, path))
            self._withdraw(path, commands.CloseTask(path))
        if key in state.timers:
            self.record(happened.TimerHalted(self.now, key))
        if key in state.awaited:
            self.record(happened.SignalHalted(self.now, key))
        if self._ready:  # taken, but not told yet: what was halted is never reported
            self._ready = deque(one for one in self._ready if one.key != key)

    def _give_up_step(self, path: StepPath) -> None:
        flight = self.state.in_flight.get(path)
        self.record(happened.StepHalted(self.now, path))
        if flight is not None:
            self._withdraw(path, commands.CancelStep(path, flight.attempt, flight.agent))

    def _withdraw(self, path: StepPath, cancel: Command) -> None:
        """Cancel what was sent before; what this very decision began is simply not sent."""
        if self._commands.pop(path, None) is None:
            self._commands[path] = cancel

    def halt_all(self) -> None:
        state = self.state
        self._ready.clear()
        for path in (*state.in_flight, *state.waiting, *state.doubts):
            self._give_up_step(StepPath(path))
        for path in (*state.children, *state.tasks):
            self._halt(key_of(StepPath(path)))
        for key in state.timers:
            self.record(happened.TimerHalted(self.now, key))
        for key in state.awaited:
            self.record(happened.SignalHalted(self.now, key))

    def end(self, event: _End) -> None:
        """The last event; whatever is open is withdrawn. The event itself says that it all is over."""
        state = self.state
        self._ready.clear()
        for flight in state.in_flight.values():
            self._withdraw(flight.path, commands.CancelStep(flight.path, flight.attempt, flight.agent))
        for child in state.children.values():
            self._withdraw(child.path, commands.CancelChild(child.path))
        for task in state.tasks.values():
            self._withdraw(task.path, commands.CloseTask(task.path))
        self.record(event)

    def _finish(self, event: happened.ExecutionCompleted | happened.ExecutionFailed) -> None:
        why = self.state.ending
        if why is None:
            self.end(event)
        else:
            self._close_ending(why)

    def _close_ending(self, why: StepFault) -> None:
        """The program has undone its work: the end that this was for."""
        if why.code == "cancelled":
            self.end(happened.ExecutionCancelled(self.now, why.message))
        else:
            self.end(happened.ExecutionFailed(self.now, why))


def outcome_of(answered: Answered) -> Outcome:
    key = answered.key
    match answered.kind:
        case "step":
            return program.StepOutcome(key, answered.name, answered.value, answered.fault)
        case "timer":
            return program.TimerFired(key)
        case "signal":
            return program.SignalReceived(key, answered.value)
        case "child":
            return program.ChildOutcome(key, answered.value, answered.fault)
        case "task":
            return program.TaskAnswered(key, answered.value)
        case _:
            assert_never(answered.kind)
