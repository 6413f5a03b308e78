"""Which message must have led to a recorded event. Pure; the first half of a replay.

Only events are stored, and every decision begins with an event that repeats what its message said: the report that was
taken, the request, the moment that came. From that event, and the state it met, the message is made again. Where an
event can have come of two messages, both are named; what was decided tells them apart.
"""

from collections.abc import Callable, Iterator, Sequence

from agentflow.execution import events as happened
from agentflow.execution import messages
from agentflow.execution.events import Event
from agentflow.execution.fork import Kept
from agentflow.execution.messages import ExecutionMessage, Stamp
from agentflow.execution.state import ExecutionState
from agentflow.ids import WorkerId

# Not recorded, and read by no rule: who reported a call that stays in doubt, who cancelled before it began.
_SOMEBODY = WorkerId("w_unknown")
_SOME_REQUEST = "unrecorded"

Cause = Callable[[Stamp], ExecutionMessage]


def causes(state: ExecutionState, upcoming: Sequence[Event]) -> Iterator[Cause]:
    """What may have led to the first of `upcoming`, the likeliest first; nothing where no message begins with it.

    Each is a message but for its stamp: the time is the event's, and of chance only the replay can tell.
    """
    event = upcoming[0]
    if isinstance(event, happened.StepEvent):
        yield from _of_a_step(state, event)
    elif isinstance(event, happened.WaitEvent):
        yield from _of_waiting(event)
    elif isinstance(event, happened.LifecycleEvent):
        yield from _of_life(event, upcoming)
    elif isinstance(event, happened.VarsUpdated):
        yield lambda stamp: messages.UpdateVars(stamp, event.request, event.vars)
    elif isinstance(event, happened.BreakpointsSet):
        yield lambda stamp: messages.SetBreakpoints(stamp, event.request, event.keys)


def _of_a_step(state: ExecutionState, event: happened.StepEvent) -> Iterator[Cause]:
    match event:
        case happened.StepScheduled():
            if event.path in state.waiting:
                yield messages.TimeReached
        case happened.StepSucceeded():
            yield lambda stamp: messages.StepReported(
                stamp,
                event.path,
                event.attempt,
                event.worker,
                event.started_at_ms,
                event.finished_at_ms,
                event.output,
                workspace=event.workspace,
            )
        case happened.StepFailed():
            if event.worker is None:
                yield messages.TimeReached
            else:
                yield _failed(event, event.worker)
        case happened.StepExcused():
            yield messages.TimeReached
        case happened.StepDoubted():
            yield messages.TimeReached
            yield _failed(event, _SOMEBODY)
        case happened.StepClaimed():
            yield lambda stamp: messages.ClaimStep(
                stamp, event.path, event.attempt, event.worker, event.id, event.undone
            )
        case happened.DoubtSettled():
            said = {"resolution": event.resolution, "output": event.output, "reason": event.reason}
            yield lambda stamp: messages.TaskAnswered(stamp, event.path, said)
        case happened.StepHalted():
            return  # a program's wish, or part of an end


def _failed(event: happened.StepFailed | happened.StepDoubted, worker: WorkerId) -> Cause:
    left = event.workspace if isinstance(event, happened.StepFailed) else None
    return lambda stamp: messages.StepReported(
        stamp, event.path, event.attempt, worker, event.at_ms, event.at_ms, fault=event.fault, workspace=left
    )


def _of_waiting(event: happened.WaitEvent) -> Iterator[Cause]:
    match event:
        case happened.TimerFired():
            yield messages.TimeReached
        case happened.SignalReceived():
            yield lambda stamp: messages.Signal(stamp, event.id, event.name, event.payload)
        case happened.ChildEnded():
            yield lambda stamp: messages.ChildEnded(stamp, event.path, event.output, event.fault)
        case happened.TaskAnswered():
            yield lambda stamp: messages.TaskAnswered(stamp, event.path, event.answer)
        case _:
            return  # begun or given up by a program


def _of_life(event: happened.LifecycleEvent, upcoming: Sequence[Event]) -> Iterator[Cause]:
    match event:
        case happened.ExecutionStarted():
            forked = next((at for at, one in enumerate(upcoming) if isinstance(one, happened.ExecutionForked)), None)
            yield _started(event) if forked is None else _forked(event, upcoming[: forked + 1])
        case happened.ExecutionBegun():
            yield messages.Admitted  # also where it only waited for its moment: with room it begins the same way
        case happened.ExecutionPaused():
            if event.request:
                yield lambda stamp: messages.Pause(stamp, event.request, event.reason, event.budget)
        case happened.ExecutionResumed():
            # Who cancels a paused execution resumes it first, under the same request.
            asked = (one for one in upcoming if isinstance(one, happened.CancelRequested))
            cancelled = next((one for one in asked if one.request == event.request), None)
            if cancelled is None:
                yield lambda stamp: messages.Resume(stamp, event.request)
            reason = "" if cancelled is None else cancelled.reason
            yield lambda stamp: messages.Cancel(stamp, event.request, reason)
        case happened.ExecutionRetried():
            yield lambda stamp: messages.RetryFailed(stamp, event.request)
        case happened.ExecutionMoved():
            yield _moved(event)
        case happened.CancelRequested():
            yield lambda stamp: messages.Cancel(stamp, event.request, event.reason)
        case happened.ExecutionCancelled():
            yield lambda stamp: messages.Cancel(stamp, _SOME_REQUEST, event.reason)  # while it was queued
        case happened.ExecutionTimedOut() | happened.ExecutionFailed():
            yield messages.TimeReached
        case happened.ExecutionTerminated():
            yield lambda stamp: messages.Terminate(stamp, event.request, event.reason)
        case happened.ExecutionCompleted() | happened.ExecutionForked():
            return  # the answer to something; part of a beginning


def _started(event: happened.ExecutionStarted) -> Cause:
    timeout_ms = None if event.deadline_ms is None else event.deadline_ms - event.at_ms
    return lambda stamp: messages.Start(
        stamp,
        event.execution,
        event.tenant,
        event.workflow,
        event.input,
        event.trace,
        timeout_ms,
        event.parent,
        event.env,
        event.priority,
        event.queue,
    )


def _forked(event: happened.ExecutionStarted, recorded: Sequence[Event]) -> Cause:
    """All that another execution had recorded was there from the first decision on."""
    *kept, forked = recorded
    assert isinstance(forked, happened.ExecutionForked)
    return lambda stamp: messages.Fork(
        stamp,
        event.execution,
        event.tenant,
        event.trace,
        forked.request,
        forked.of,
        Kept(tuple(kept), forked.of.version, forked.left_at_ms, forked.answered),
        forked.input,
        forked.vars,
        None if forked.deadline_ms is None else forked.deadline_ms - forked.at_ms,
        event.priority,
        event.queue,
        forked.reason,
        forked.workspace,
    )


def _moved(event: happened.ExecutionMoved) -> Cause:
    """What stood where in the version before is not recorded: that it was no other kind was seen to then."""
    return lambda stamp: messages.Move(
        stamp, event.request, event.workflow, renamed=event.renamed, vars=event.vars, reason=event.reason
    )
