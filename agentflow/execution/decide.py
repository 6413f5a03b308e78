"""The rules of an execution: what follows from what has just arrived.

Pure: the same state, message and program always give the same decision, so a stored log replays to the
same end. Called by the orchestrator's commit loop, the replayer and the simulation. A decision is put together
in a `Draft`, which also follows what the program wants.
"""

from typing import assert_never

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution import events as happened
from agentflow.execution import messages
from agentflow.execution.draft import Decision, Draft
from agentflow.execution.events import Answered, Queued
from agentflow.execution.evolve import TIMED_OUT
from agentflow.execution.messages import ExecutionMessage
from agentflow.execution.moving import adoption
from agentflow.execution.program import Compensating, Program
from agentflow.execution.state import (
    DUE_RETRY,
    DUE_TIMEOUT,
    Broken,
    ExecutionState,
    Status,
    due_at_ms,
    due_kind,
    key_of,
)

__all__ = ["Decision", "decide"]


def decide(state: ExecutionState, message: ExecutionMessage, program: Program) -> Decision:
    if state.ended and not (
        state.status is Status.FAILED
        and isinstance(message, messages.RetryFailed | messages.UpdateVars | messages.Move)
    ):
        return Decision(state)  # a latecomer; the story is over
    draft = Draft(state, program, message.stamp)
    if isinstance(message, messages.StepReported):
        _step_reported(draft, message)
    elif isinstance(message, messages.Beginning):
        if state.version == 0:
            _fork(draft, message) if isinstance(message, messages.Fork) else _start(draft, message)
    elif state.version == 0:
        pass  # nothing can be said about what has not begun
    elif isinstance(message, messages.Report):
        _reported(draft, message)
    elif message.id not in state.seen:
        _requested(draft, message)
    return draft.decision()


def _start(draft: Draft, message: messages.Start) -> None:
    at_ms = draft.now
    draft.record(
        happened.ExecutionStarted(
            at_ms=at_ms,
            execution=message.execution,
            tenant=message.tenant,
            workflow=message.workflow,
            input=message.input,
            trace=message.trace,
            deadline_ms=None if message.timeout_ms is None else at_ms + message.timeout_ms,
            parent=message.parent,
            env=message.env,
            priority=message.priority,
            queue=None if _has_its_turn(message.queue, at_ms) else message.queue,
        )
    )
    if draft.state.status is Status.RUNNING:
        draft.begin()


def _fork(draft: Draft, message: messages.Fork) -> None:
    started = msgspec.structs.replace(
        message.started,
        at_ms=draft.now,
        execution=message.execution,
        trace=message.trace,
        deadline_ms=None,
        parent=None,  # whoever waits for the other one does not wait for this one
        priority=message.priority,
        queue=message.queue,
    )
    for event in (started, *message.kept.events[1:]):
        draft.record(event)
    undoing = draft.state.ending is not None
    draft.record(
        happened.ExecutionForked(
            at_ms=draft.now,
            request=message.id,
            of=message.of,
            left_at_ms=message.kept.at_ms,
            deadline_ms=None if message.timeout_ms is None or undoing else draft.now + message.timeout_ms,
            input=message.input,
            vars=message.vars,
            answered=message.kept.answered,
            reason=message.reason,
            workspace=message.workspace,
        )
    )
    if _has_its_turn(message.queue, draft.now):
        _begin(draft)


def _has_its_turn(queue: Queued | None, now: int) -> bool:
    """Whether nothing but time could have kept it waiting, and that is over."""
    return queue is None or not (queue.limited or (queue.not_before_ms or 0) > now)


def _admitted(draft: Draft, *, room: bool) -> None:
    """Its moment has come, or room was found for it: an execution begins when it has both."""
    queue = draft.state.queue
    if draft.state.status is not Status.QUEUED or queue is None:
        return
    if (queue.not_before_ms or 0) <= draft.now and (room or not queue.limited):
        _begin(draft)


def _begin(draft: Draft) -> None:
    broken = draft.state.broken
    draft.record(happened.ExecutionBegun(draft.now))
    if broken is None:
        draft.begin()
    else:
        _take_up(draft, broken)


def _step_reported(draft: Draft, message: messages.StepReported) -> None:
    flight = draft.state.in_flight.get(message.path)
    if flight is None or flight.attempt != message.attempt:
        if draft.state.claimed:
            draft.turned_up(message)
        return  # a repeat, or an attempt already given up on: it changes nothing
    if message.fault is not None:
        draft.left = message.workspace
        draft.attempt_failed(flight, message.fault, message.worker)
        return
    draft.record(
        happened.StepSucceeded(
            at_ms=draft.now,
            path=flight.path,
            attempt=flight.attempt,
            output=message.output,
            worker=message.worker,
            started_at_ms=message.started_at_ms,
            finished_at_ms=message.finished_at_ms,
            workspace=message.workspace,
        )
    )
    draft.tell(Answered("step", key_of(flight.path), flight.path, flight.name, message.output))


def _reported(draft: Draft, message: messages.Report) -> None:
    match message:
        case messages.StepReported():
            _step_reported(draft, message)
        case messages.Admitted():
            _admitted(draft, room=True)
        case messages.ClaimStep():
            draft.claim(message)
        case messages.TimeReached():
            if draft.state.status is Status.QUEUED:
                _admitted(draft, room=False)
            elif draft.state.paused_at_ms is None:
                _time_reached(draft)
        case messages.ChildEnded():
            if message.path in draft.state.children:
                draft.record(happened.ChildEnded(draft.now, message.path, message.output, message.fault))
                key = key_of(message.path)
                draft.tell(Answered("child", key, message.path, "", message.output, message.fault))
        case messages.TaskAnswered():
            if message.path in draft.state.tasks:
                draft.record(happened.TaskAnswered(draft.now, message.path, message.answer))
                draft.tell(Answered("task", key_of(message.path), message.path, value=message.answer))
            elif message.path in draft.state.doubts:
                draft.settle(message.path, message.answer)
        case _:
            assert_never(message)


def _time_reached(draft: Draft) -> None:
    now = draft.now
    if draft.state.deadline_ms is not None and now >= draft.state.deadline_ms:
        _out_of_time(draft)
        return
    # Only what is due already: what these moments lead to has its own, and the shell asks again.
    moments = []
    for key, of in draft.state.due.items():
        if due_at_ms(key) > now:
            break
        moments.append((key, of))
    for key, of in moments:
        if draft.state.ended or draft.state.paused_at_ms is not None:
            return  # the rest is due when it goes on
        if key not in draft.state.due:
            continue  # an earlier moment of this decision made it pointless
        match due_kind(key):
            case kind if kind == DUE_RETRY:
                draft.try_again(draft.state.waiting[of].last)
            case kind if kind == DUE_TIMEOUT:
                flight = draft.state.in_flight[of]
                if not draft.hears:
                    draft.record(happened.StepExcused(now, flight.path, flight.attempt))
                    continue
                late = f"No result within {flight.timeout_ms} ms."
                draft.attempt_failed(flight, StepFault("timeout", late, retryable=True), None)
            case _:
                draft.record(happened.TimerFired(now, of))
                draft.tell(Answered("timer", of))


def _requested(draft: Draft, message: messages.Request) -> None:
    """What somebody wants of a run, each once by its id."""
    now, state = draft.now, draft.state
    match message:
        case messages.Signal():
            draft.signal(message.id, message.name, message.payload)
        case messages.Pause():
            if state.status is Status.RUNNING or (state.held_by and state.held_by != message.budget):
                draft.record(happened.ExecutionPaused(now, message.id, message.reason, budget=message.budget))
        case messages.Resume():
            if state.status is Status.PAUSED and message.budget in ("", state.held_by):
                draft.past = state.stopped_at
                _resume(draft, message.id)
                if draft.state.status is Status.RUNNING:
                    _time_reached(draft)
                draft.notice()
        case messages.Cancel():
            if state.ending is None:
                _cancel(draft, message)
        case messages.Terminate():
            reason = message.reason or "The execution was terminated."
            draft.end(happened.ExecutionTerminated(now, message.id, reason))
        case messages.UpdateVars():
            draft.record(happened.VarsUpdated(now, message.id, message.vars))
            draft.notice()
        case messages.SetBreakpoints():
            draft.record(happened.BreakpointsSet(now, message.id, message.keys))
        case messages.Move():
            found = adoption(state, draft.program, message)
            if not found.misfits:
                draft.record(
                    happened.ExecutionMoved(
                        now, message.id, message.workflow, found.vars, message.renamed, message.reason
                    )
                )
                draft.notice()
        case messages.RetryFailed():
            if state.status is Status.FAILED and state.broken is not None:
                _retry(draft, message, state.broken)
        case _:
            assert_never(message)


def _resume(draft: Draft, request: str) -> None:
    held = tuple(draft.state.held.values())
    draft.record(happened.ExecutionResumed(draft.now, request))
    draft.tell(*held)


def _cancel(draft: Draft, message: messages.Cancel) -> None:
    if draft.state.status is Status.QUEUED and draft.state.broken is None:
        draft.end(happened.ExecutionCancelled(draft.now, message.reason))  # it did nothing that could be undone
        return
    if draft.state.status is Status.PAUSED:
        draft.stops = False
        _resume(draft, message.id)  # what has ended well may have to be undone, so the program hears of it first
    if not draft.state.ended:
        draft.record(happened.CancelRequested(draft.now, message.id, message.reason))
        _unwind(draft)


def _out_of_time(draft: Draft) -> None:
    if isinstance(draft.program, Compensating):
        draft.record(happened.ExecutionTimedOut(draft.now))
        _unwind(draft)
    else:
        draft.end(happened.ExecutionFailed(draft.now, TIMED_OUT))


def _unwind(draft: Draft) -> None:
    if draft.state.ending is not None:
        draft.halt_all()
        draft.unwind(draft.state.ending)


def _retry(draft: Draft, message: messages.RetryFailed, broken: Broken) -> None:
    """Let a failed run go on where it broke: at once, or when there is room for it among those that are under way."""
    queue = draft.state.queue
    queued = queue is not None and queue.limited
    draft.record(happened.ExecutionRetried(draft.now, message.id, queued))
    if not queued:
        _take_up(draft, broken)


def _take_up(draft: Draft, broken: Broken) -> None:
    """What had been given up when the run broke is begun anew: a step as another attempt, a child and a task under a
    path of their own."""
    again = () if broken.again is None else (broken.again,)
    for step in (*broken.steps, *(one for one in again if isinstance(one, happened.StepScheduled))):
        draft.try_afresh(step)
    for child in (*broken.children, *(one for one in again if isinstance(one, happened.ChildStarted))):
        draft.start_child(key_of(child.path), child.workflow, child.version, child.input)
    for task in broken.tasks:
        draft.open_task(key_of(task.path), task.task)
    if broken.told:
        draft.tell(*broken.told)
    elif broken.answered is not None and broken.again is None:
        draft.tell(broken.answered)  # nothing to run again: the program may answer differently, say by new vars
    elif not draft.state.waits:
        draft.begin()
    draft.take_kept_signals()
