"""How each event changes what is known. `evolve` can neither fail nor choose: what happened, happened."""

from typing import Any, assert_never

from msgspec.structs import replace

from agentflow import limits
from agentflow.contracts.step import IN_DOUBT, StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.execution import events as happened
from agentflow.execution.agenda import Agenda
from agentflow.execution.events import Answered, Event
from agentflow.execution.frozen_map import FrozenMap
from agentflow.execution.state import (
    DUE_RETRY,
    DUE_TIMEOUT,
    DUE_TIMER,
    NOTHING,
    Awaited,
    Broken,
    Claimed,
    Doubt,
    ExecutionState,
    Status,
    Waiting,
    due_key,
    key_of,
)
from agentflow.ids import StepPath


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    if isinstance(event, happened.StepEvent):
        return _step(state, event)
    if isinstance(event, happened.ProgramMoved):
        memory = state.memory.without_all(event.forgot).put_all(event.memory)
        changed = {**state.vars, **event.vars} if event.vars else state.vars
        return replace(state, version=state.version + 1, memory=memory, vars=changed)
    if isinstance(event, happened.WaitEvent):
        return _wait(state, event)
    if isinstance(event, happened.VarsUpdated):
        changed = {**state.vars, **event.vars}
        return replace(state, version=state.version + 1, vars=changed, seen=_saw(state, event.request))
    if isinstance(event, happened.BreakpointsSet):
        return replace(
            state, version=state.version + 1, breakpoints=event.keys, seen=_saw(state, event.request)
        )  # fmt: skip
    return _life(state, event)


def _step(state: ExecutionState, event: happened.StepEvent) -> ExecutionState:
    version = state.version + 1
    path = event.path
    match event:
        case happened.StepScheduled():
            due, waiting, visits = state.due, state.waiting, state.visits
            before = waiting.get(path) if waiting else None
            if before is not None:
                due = due.without(due_key(before.retry_at_ms, DUE_RETRY, path))
                waiting = waiting.without(path)
            if event.attempt == 1:
                visits = _visited(visits, path)
            due = due.put(due_key(event.at_ms + event.timeout_ms, DUE_TIMEOUT, path), path)
            in_flight = state.in_flight.put(path, event)
            return replace(state, version=version, in_flight=in_flight, waiting=waiting, visits=visits, due=due)
        case happened.StepSucceeded():
            if event.workspace is not None:
                state = _left(state, event.workspace)
            flight = state.in_flight.get(path)
            if flight is None:
                return _settled(state, version, path, event.output)  # a lost result that turned up
            moved = replace(
                state,
                version=version,
                in_flight=state.in_flight.without(path),
                due=_no_timeout(state, flight),
                outputs=state.outputs.put(flight.name, event.output),
                held=_held(state, Answered("step", key_of(path), path, flight.name, event.output)),
            )
            return replace(moved, claimed=state.claimed.without(path)) if state.claimed else moved
        case happened.StepFailed():
            if event.workspace is not None:
                state = _left(state, event.workspace)
            if event.claim_over:
                state = replace(state, claimed=state.claimed.without(path))
            flight = state.in_flight[path]
            due, in_flight = _no_timeout(state, flight), state.in_flight.without(path)
            if event.retry_at_ms is not None:
                waiting = state.waiting.put(path, Waiting(flight, event.retry_at_ms))
                due = due.put(due_key(event.retry_at_ms, DUE_RETRY, path), path)
                return replace(state, version=version, in_flight=in_flight, waiting=waiting, due=due)
            held = _held(state, Answered("step", key_of(path), path, flight.name, fault=event.fault))
            return replace(state, version=version, in_flight=in_flight, due=due, failed=flight, held=held)
        case happened.StepHalted():
            flight_or_none, between = state.in_flight.get(path), state.waiting.get(path)
            due = state.due if flight_or_none is None else _no_timeout(state, flight_or_none)
            if between is not None:
                due = due.without(due_key(between.retry_at_ms, DUE_RETRY, path))
            in_flight, waiting = state.in_flight.without(path), state.waiting.without(path)
            moved = replace(state, version=version, in_flight=in_flight, waiting=waiting, due=due)
            return _unclaimed(moved, path) if state.claimed else moved
        case happened.StepExcused():
            flight = state.in_flight[path]
            anew = replace(flight, at_ms=event.at_ms)
            due = _no_timeout(state, flight).put(due_key(event.at_ms + flight.timeout_ms, DUE_TIMEOUT, path), path)
            return replace(state, version=version, in_flight=state.in_flight.put(path, anew), due=due)
        case happened.StepClaimed() | happened.StepDoubted() | happened.DoubtSettled():
            return _claim(state, version, event)
        case _:
            assert_never(event)


def _claim(
    state: ExecutionState, version: int, event: happened.StepClaimed | happened.StepDoubted | happened.DoubtSettled
) -> ExecutionState:
    """The one call of a tool that must not be called twice: claimed, doubted, settled."""
    path = event.path
    match event:
        case happened.StepClaimed():
            claim = Claimed(event.attempt, event.id, event.worker, event.undone)
            return replace(state, version=version, claimed=state.claimed.put(path, claim))
        case happened.StepDoubted():
            flight = state.in_flight[path]
            return replace(
                state,
                version=version,
                in_flight=state.in_flight.without(path),
                due=_no_timeout(state, flight),
                doubts=state.doubts.put(path, Doubt(flight, event.at_ms, event.fault)),
            )
        case happened.DoubtSettled():
            if event.resolution == "done":
                return _settled(state, version, path, event.output)
            step = state.doubts[path].step
            moved = replace(_unclaimed(state, path), version=version)
            if event.resolution == "retry":
                return moved  # the attempt that follows is scheduled by the next event
            held = _held(state, Answered("step", key_of(path), path, step.name, fault=settled_fault(event)))
            return replace(moved, failed=step, held=held)
        case _:
            assert_never(event)


def _left(state: ExecutionState, workspace: WorkspaceLeft) -> ExecutionState:
    """Calls of an execution take turns, but their outcomes may be recorded in another order."""
    known = state.workspace
    return state if known is not None and known.number > workspace.number else replace(state, workspace=workspace)


def settled_fault(event: happened.DoubtSettled) -> StepFault:
    return StepFault(IN_DOUBT, event.reason or "It was in doubt, and a person settled that it failed.")


def _settled(state: ExecutionState, version: int, path: StepPath, output: Any) -> ExecutionState:
    step = state.doubts[path].step
    return replace(
        _unclaimed(state, path),
        version=version,
        outputs=state.outputs.put(step.name, output),
        held=_held(state, Answered("step", key_of(path), path, step.name, output)),
    )


def _unclaimed(state: ExecutionState, path: StepPath) -> ExecutionState:
    return replace(state, claimed=state.claimed.without(path), doubts=state.doubts.without(path))


def _wait(state: ExecutionState, event: happened.WaitEvent) -> ExecutionState:
    """Timers, signals, children and tasks: each is open until it ends or is halted."""
    version = state.version + 1
    match event:
        case happened.TimerStarted():
            due = state.due.put(due_key(event.due_ms, DUE_TIMER, event.key), event.key)
            return replace(state, version=version, timers=state.timers.put(event.key, event.due_ms), due=due)
        case happened.TimerFired() | happened.TimerHalted():
            due = state.due.without(due_key(state.timers[event.key], DUE_TIMER, event.key))
            return replace(state, version=version, timers=state.timers.without(event.key), due=due)
        case happened.SignalAwaited():
            awaited = state.awaited.put(event.key, Awaited(event.name, version))
            return replace(state, version=version, awaited=awaited)
        case happened.SignalReceived():
            seen = _saw(state, event.id)
            if event.key is None:
                return replace(state, version=version, kept=(*state.kept, event), seen=seen)
            held = _held(state, Answered("signal", event.key, value=event.payload))
            return replace(state, version=version, awaited=state.awaited.without(event.key), held=held, seen=seen)
        case happened.SignalTaken():
            kept = tuple(one for one in state.kept if one.id != event.id)
            return replace(state, version=version, kept=kept, awaited=state.awaited.without(event.key))
        case happened.SignalHalted():
            return replace(state, version=version, awaited=state.awaited.without(event.key))
        case happened.ChildStarted():
            visits = _visited(state.visits, event.path)
            return replace(state, version=version, children=state.children.put(event.path, event), visits=visits)
        case happened.ChildEnded():
            failed = state.failed if event.fault is None else state.children[event.path]
            held = _held(state, Answered("child", key_of(event.path), event.path, "", event.output, event.fault))
            children = state.children.without(event.path)
            return replace(state, version=version, children=children, held=held, failed=failed)
        case happened.ChildHalted():
            return replace(state, version=version, children=state.children.without(event.path))
        case happened.TaskOpened():
            visits = _visited(state.visits, event.path)
            return replace(state, version=version, tasks=state.tasks.put(event.path, event), visits=visits)
        case happened.TaskAnswered():
            held = _held(state, Answered("task", key_of(event.path), event.path, value=event.answer))
            return replace(state, version=version, tasks=state.tasks.without(event.path), held=held)
        case happened.TaskHalted():
            return replace(state, version=version, tasks=state.tasks.without(event.path))
        case _:
            assert_never(event)


def _life(state: ExecutionState, event: happened.LifecycleEvent) -> ExecutionState:
    version = state.version + 1
    match event:
        case happened.ExecutionStarted():
            return replace(
                state,
                version=version,
                status=Status.RUNNING if event.queue is None else Status.QUEUED,
                execution=event.execution,
                tenant=event.tenant,
                workflow=event.workflow,
                trace=event.trace,
                input=event.input,
                started_at_ms=event.at_ms,
                deadline_ms=event.deadline_ms,
                parent=event.parent,
                env=event.env,
                priority=event.priority,
                queue=event.queue,
                begun_at_ms=event.at_ms,
            )
        case happened.ExecutionBegun():
            waited_ms = event.at_ms - state.begun_at_ms
            deadline_ms = None if state.deadline_ms is None else state.deadline_ms + waited_ms
            begun = replace(
                state, version=version, status=Status.RUNNING, begun_at_ms=event.at_ms, deadline_ms=deadline_ms
            )
            return begun if state.broken is None else _taken_up(begun, state.broken)
        case happened.ExecutionPaused():
            return _paused(state, version, event)
        case happened.ExecutionResumed():
            return replace(_unpaused(state, event.at_ms), version=version, seen=_saw(state, event.request))
        case happened.ExecutionRetried():
            return _retried(state, version, event)
        case happened.ExecutionForked():
            return _forked(state, version, event)
        case happened.ExecutionMoved():
            return _moved(state, version, event)
        case happened.CancelRequested():
            ending = StepFault("cancelled", event.reason or "The execution was cancelled.")
            return replace(
                state,
                version=version,
                status=Status.RUNNING,  # also if it was queued again after a failure: undoing waits for no room
                broken=None,
                ending=ending,
                deadline_ms=None,
                seen=_saw(state, event.request),
            )
        case happened.ExecutionTimedOut():
            return replace(state, version=version, ending=TIMED_OUT, deadline_ms=None)
        case happened.ExecutionCompleted():
            closed = _closed(state, version, event.at_ms, Status.COMPLETED)
            return replace(closed, output=event.output, memory=NOTHING, kept=(), failed=None)
        case happened.ExecutionFailed():
            broken = None if state.ending is not None else _broken(state, event.answered)
            return replace(
                _closed(state, version, event.at_ms, Status.FAILED), fault=event.fault, failed=None, broken=broken
            )  # fmt: skip
        case happened.ExecutionCancelled():
            closed = _closed(state, version, event.at_ms, Status.CANCELLED)
            return replace(closed, fault=StepFault("cancelled", event.reason), memory=NOTHING, kept=(), failed=None)
        case happened.ExecutionTerminated():
            closed = _closed(state, version, event.at_ms, Status.CANCELLED)
            fault = StepFault("terminated", event.reason)
            seen = _saw(state, event.request)
            return replace(closed, fault=fault, memory=NOTHING, kept=(), failed=None, seen=seen)
        case _:
            assert_never(event)


TIMED_OUT = StepFault("execution_timeout", "The execution took longer than its timeout.")


def _visited(visits: FrozenMap[int], path: StepPath) -> FrozenMap[int]:
    key, _, visit = path.partition("~")
    return visits.put(key, int(visit or 1))


def _no_timeout(state: ExecutionState, flight: happened.StepScheduled) -> Agenda:
    return state.due.without(due_key(flight.at_ms + flight.timeout_ms, DUE_TIMEOUT, flight.path))


def _held(state: ExecutionState, answered: Answered) -> FrozenMap[Answered]:
    """While paused, an outcome waits for the program; otherwise it was put to it in the same decision."""
    if state.paused_at_ms is None:
        return state.held
    return state.held.put(f"{state.version:015d}", answered)


def _saw(state: ExecutionState, request: str) -> tuple[str, ...]:
    return (*state.seen[1 - limits.REQUESTS_REMEMBERED_MAX :], request)


def _paused(state: ExecutionState, version: int, event: happened.ExecutionPaused) -> ExecutionState:
    if state.paused_at_ms is not None:
        taken_over = {"paused_by": event.request, "held_by": event.budget, "seen": _saw(state, event.request)}
        return replace(state, version=version, **taken_over)
    return replace(
        state,
        version=version,
        status=Status.PAUSED,
        paused_at_ms=event.at_ms,
        paused_by=event.request,
        stopped_at=event.breakpoint,
        held_by=event.budget,
        held=NOTHING.put_all({f"{state.version:015d}.{at:06d}": one for at, one in enumerate(event.held)}),
        seen=_saw(state, event.request) if event.request else state.seen,
    )


def _unpaused(state: ExecutionState, at_ms: int) -> ExecutionState:
    """A pause is not counted against the execution's own time."""
    if state.paused_at_ms is None:
        return state
    paused_ms = at_ms - state.paused_at_ms
    return replace(
        state,
        status=Status.RUNNING,
        paused_at_ms=None,
        paused_by="",
        held=NOTHING,
        stopped_at="",
        held_by="",
        deadline_ms=None if state.deadline_ms is None else state.deadline_ms + paused_ms,
        begun_at_ms=state.begun_at_ms + paused_ms,
    )


def _closed(state: ExecutionState, version: int, at_ms: int, status: Status) -> ExecutionState:
    closed: dict[str, Any] = dict.fromkeys(
        ("in_flight", "waiting", "children", "tasks", "timers", "awaited", "held", "doubts"), NOTHING
    )
    closed |= {"due": Agenda(), "paused_at_ms": None, "paused_by": "", "held_by": "", "ending": None, "broken": None}
    return replace(state, version=version, ended_at_ms=at_ms, status=status, **closed)


def _broken(state: ExecutionState, answered: Answered | None) -> Broken:
    again = None
    if answered is not None and answered.fault is not None and state.failed is not None:
        again = state.failed if state.failed.path == answered.path else None
    return Broken(
        answered=answered,
        again=again,
        steps=(
            *state.in_flight.values(),
            *(waiting.last for waiting in state.waiting.values()),
            *(doubt.step for doubt in state.doubts.values()),
        ),
        children=tuple(state.children.values()),
        tasks=tuple(state.tasks.values()),
        timers=state.timers,
        awaited=state.awaited,
    )


def _retried(state: ExecutionState, version: int, event: happened.ExecutionRetried) -> ExecutionState:
    deadline_ms = None if state.deadline_ms is None else event.at_ms + state.deadline_ms - state.begun_at_ms
    retried = replace(
        state,
        version=version,
        status=Status.QUEUED if event.queued else Status.RUNNING,
        ended_at_ms=None,
        begun_at_ms=event.at_ms,
        deadline_ms=deadline_ms,
        fault=None,
        seen=_saw(state, event.request),
    )
    return retried if event.queued or state.broken is None else _taken_up(retried, state.broken)


def _forked(state: ExecutionState, version: int, event: happened.ExecutionForked) -> ExecutionState:
    """It stands where the other one stood, and waits for its turn to begin anew, in its own time, what was open there.
    What was claimed for one call was claimed for the other one's."""
    broken = _broken(state, None)
    path = event.of.path if "input" in event.of.edited else None
    later_ms = event.at_ms - event.left_at_ms
    left = replace(
        broken,
        steps=tuple(replace(step, input=event.input) if step.path == path else step for step in broken.steps),
        timers=NOTHING.put_all({key: due_ms + later_ms for key, due_ms in broken.timers.items()}),
        told=tuple(state.held.values()) or (() if event.answered is None else (event.answered,)),
    )
    return replace(
        _closed(state, version, event.at_ms, Status.QUEUED),
        ended_at_ms=None,
        begun_at_ms=event.at_ms,
        deadline_ms=event.deadline_ms,
        ending=state.ending,
        claimed=NOTHING,
        breakpoints=(),
        stopped_at="",
        vars={**state.vars, **event.vars},
        broken=left,
        forked=event.of,
        workspace=event.workspace,
        seen=_saw(state, event.request),
    )


def _moved(state: ExecutionState, version: int, event: happened.ExecutionMoved) -> ExecutionState:
    gone = set(event.renamed.values())
    kept = {name: value for name, value in state.vars.items() if name not in gone}
    seen = _saw(state, event.request)
    return replace(state, version=version, workflow=event.workflow, vars={**kept, **event.vars}, seen=seen)


def _taken_up(state: ExecutionState, broken: Broken) -> ExecutionState:
    """What only waits, waits again; what is to be done again is scheduled by the events that follow."""
    due = Agenda()
    for key, at_ms in broken.timers.items():
        due = due.put(due_key(at_ms, DUE_TIMER, key), key)
    return replace(state, broken=None, timers=broken.timers, awaited=broken.awaited, due=due)
