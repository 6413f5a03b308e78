"""The invariants that every fault test ends with: what must hold whatever was killed, stopped, cut or wiped.

Pure. Each rule yields a sentence for everything that breaks it; numbers are those of the failure model (I1 … I20).
The history is folded with the rules of the product itself, so a rule can say what was true when an event was written.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import msgspec

from agentflow.canonical import canonical
from agentflow.execution import events as happened
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, next_wakeup
from agentflow.ids import ExecutionId
from tests.invariants.history import Asked, History, Recorded

OUTBOX_MS = 10_000  # what is committed is with the bus within this
LATE_MS = 10_000  # no timer is later than this, once nothing is broken

_ENDS = (
    happened.ExecutionCompleted,
    happened.ExecutionFailed,
    happened.ExecutionCancelled,
    happened.ExecutionTerminated,
)
_AFTER_A_FAILURE = (happened.VarsUpdated, happened.ExecutionMoved, happened.ExecutionRetried)


class Violation(NamedTuple):
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Moment(NamedTuple):
    """An event, and the state it met."""

    before: ExecutionState
    recorded: Recorded


class Story:
    """A history with every execution folded: as far as it folds."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.moments: dict[ExecutionId, list[Moment]] = defaultdict(list)
        self.states: dict[ExecutionId, ExecutionState] = {}
        self.unfoldable: dict[ExecutionId, str] = {}
        for recorded in sorted(history.events, key=lambda one: (one.execution, one.version, one.position)):
            state = self.states.get(recorded.execution, ExecutionState())
            self.moments[recorded.execution].append(Moment(state, recorded))
            if recorded.execution not in self.unfoldable:
                try:
                    self.states[recorded.execution] = evolve(state, recorded.event)
                except (KeyError, LookupError, TypeError, AttributeError) as error:
                    self.unfoldable[recorded.execution] = f"version {recorded.version}: {error!r}"

    def all_moments(self) -> Iterator[Moment]:
        for moments in self.moments.values():
            yield from moments


def acknowledged_requests_have_their_event(story: Story) -> Iterator[str]:
    """I1."""
    written = {(one.execution, *_request_of(one.event)) for one in story.history.events}
    for asked in story.history.asked:
        if asked.outcome == "accepted" and not asked.was_over and not _is_written(asked, written, story):
            yield f"{asked.kind} {asked.id or asked.key or ''} of {asked.execution} was accepted and is not recorded"


def _is_written(asked: Asked, written: set[tuple[ExecutionId, str, str]], story: Story) -> bool:
    match asked.kind:
        case "start":
            return asked.execution in story.states
        case "pause" | "resume" | "retry":
            return True  # what it asks for may be so already: then there is nothing to record
        case "cancel" | "terminate":
            state = story.states.get(asked.execution) if asked.execution else None
            return state is not None and (state.ended or state.ending is not None)
        case _:
            return (asked.execution, asked.kind, asked.id) in written


def _request_of(event: happened.Event) -> tuple[str, str]:
    match event:
        case happened.SignalReceived():
            return "signal", event.id
        case happened.VarsUpdated():
            return "vars", event.request
        case happened.TaskAnswered():
            return "answer", event.path
        case _:
            return "", ""


def whatever_is_open_can_be_moved(story: Story) -> Iterator[str]:
    """I2."""
    history = story.history
    held = None if history.leases is None else {one.shard for one in history.leases if one.holder and one.left_s > 0}
    shards = {recorded.execution: recorded.shard for recorded in history.events}
    for execution, state in story.states.items():
        if state.ended:
            continue
        if not state.waits and state.paused_at_ms is None:
            yield f"{execution} is {state.status} and waits for nothing"
        if held is not None and shards[execution] not in held:
            yield f"{execution} is {state.status} and nobody owns its shard {shards[execution]}"


def versions_have_no_gap_and_one_end(story: Story) -> Iterator[str]:
    """I3."""
    for execution, moments in story.moments.items():
        versions = [moment.recorded.version for moment in moments]
        if versions != list(range(1, len(versions) + 1)):
            yield f"{execution} has the versions {versions}"
        events = [moment.recorded.event for moment in moments]
        if not isinstance(events[0], happened.ExecutionStarted):
            yield f"{execution} begins with {happened.type_of(events[0])}"
        over: happened.Event | None = None
        for event in events[1:]:
            if isinstance(event, happened.ExecutionStarted):
                yield f"{execution} was started twice"
            allowed = _AFTER_A_FAILURE if isinstance(over, happened.ExecutionFailed) else ()
            if over is not None and not isinstance(event, allowed):
                yield f"{execution} goes on with {happened.type_of(event)} after {happened.type_of(over)}"
            if isinstance(event, _ENDS):
                over = event
            elif isinstance(event, happened.ExecutionRetried):
                over = None


def a_result_is_of_the_current_attempt_and_taken_once(story: Story) -> Iterator[str]:
    """I4."""
    for execution, moments in story.moments.items():
        last: Counter[str] = Counter()
        outcomes: Counter[tuple[str, int]] = Counter()
        succeeded: set[str] = set()
        for before, recorded in moments:
            event = recorded.event
            if isinstance(event, happened.StepScheduled):
                if event.attempt != last[event.path] + 1:
                    yield f"{execution} {event.path}: attempt {event.attempt} follows attempt {last[event.path]}"
                if event.path in succeeded:
                    yield f"{execution} {event.path} is scheduled after it has succeeded"
                last[event.path] = event.attempt
            elif isinstance(event, happened.StepSucceeded | happened.StepFailed):
                flight = before.in_flight.get(event.path)
                current = None if flight is None else flight.attempt
                if current != event.attempt:
                    yield f"{execution} {event.path}: a result of attempt {event.attempt} while {current} was current"
                outcomes[event.path, event.attempt] += 1
                if isinstance(event, happened.StepSucceeded):
                    if event.path in succeeded:
                        yield f"{execution} {event.path} has two results"
                    succeeded.add(event.path)
        for (path, attempt), count in outcomes.items():
            if count > 1:
                yield f"{execution} {path}: attempt {attempt} has {count} outcomes"


def effects_are_of_recorded_attempts_under_one_key(story: Story) -> Iterator[str]:
    """I5."""
    scheduled: Counter[tuple[ExecutionId, str]] = Counter()
    attempts: set[tuple[ExecutionId, str, int]] = set()
    tenants: dict[ExecutionId, str] = {}
    for recorded in story.history.events:
        tenants[recorded.execution] = recorded.tenant
        if isinstance(recorded.event, happened.StepScheduled):
            scheduled[recorded.execution, recorded.event.path] += 1
            attempts.add((recorded.execution, recorded.event.path, recorded.event.attempt))
    runs: Counter[tuple[ExecutionId, str]] = Counter()
    for effect in story.history.effects or ():
        step = (effect.execution, effect.path)
        runs[step] += 1
        if (*step, effect.attempt) not in attempts:
            yield f"{effect.execution} {effect.path}: attempt {effect.attempt} ran and is not recorded"
        if effect.key != f"{tenants.get(effect.execution)}/{effect.execution}/{effect.path}":
            yield f"{effect.execution} {effect.path}: attempt {effect.attempt} ran under the key {effect.key}"
        if effect.at_most_once and runs[step] > 1:
            yield f"{effect.execution} {effect.path} may act once at most and ran {runs[step]} times"
    for (execution, path), count in runs.items():
        if count > scheduled[execution, path] and not story.history.bus_forgot:
            yield f"{execution} {path} ran {count} times in {scheduled[execution, path]} attempts"


def a_key_stands_for_one_execution(story: Story) -> Iterator[str]:
    """I7."""
    meant: dict[str, tuple[ExecutionId | None, bytes]] = {}
    for asked in story.history.asked:
        if asked.kind != "start" or asked.key is None or asked.outcome != "accepted":
            continue
        first, body = meant.setdefault(asked.key, (asked.execution, canonical(asked.body)))
        if canonical(asked.body) != body:
            yield f"the key {asked.key} was accepted for two different requests"
        elif asked.execution != first:
            yield f"the key {asked.key} stands for {first} and for {asked.execution}"
    recorded = Counter((one.execution, happened.type_of(one.event), _id_of(one.event)) for one in story.history.events)
    for (execution, kind, request), count in recorded.items():
        if request and count > 1:
            yield f"{execution}: the request {request} is recorded {count} times as {kind}"


def _id_of(event: happened.Event) -> str:
    return str(event.id if isinstance(event, happened.SignalReceived) else getattr(event, "request", ""))


def every_way_to_the_state_leads_to_the_same(story: Story) -> Iterator[str]:
    """I8."""
    for execution, why in story.unfoldable.items():
        yield f"{execution} does not fold: {why}"
    for listed in story.history.listed:
        state = story.states.get(listed.execution)
        if state is None:
            yield f"{listed.execution} is listed and has no events"
        elif listed.execution not in story.unfoldable:
            shown = (listed.tenant, listed.status, listed.started_at_ms, listed.ended_at_ms)
            if shown != (state.tenant, state.status, state.started_at_ms, state.ended_at_ms):
                yield f"{listed.execution} is listed as {shown}, its events say {state.status}"
    if story.history.listed:
        for execution in story.states.keys() - {listed.execution for listed in story.history.listed}:
            yield f"{execution} has events and is not listed"
    for kept in story.history.snapshots:
        tail = [one.recorded.event for one in story.moments[kept.execution] if one.recorded.version > kept.version]
        whole = story.states.get(kept.execution)
        if kept.execution not in story.unfoldable and (whole is None or not _is_same(kept.state, tail, whole)):
            yield f"{kept.execution}: its snapshot of version {kept.version} and what follows lead elsewhere"
    for state in story.history.remembered:
        known = story.states.get(state.execution)
        if known is None or _bytes(known) != _bytes(state):
            yield f"{state.execution}: its owner remembers version {state.version}, and not what is stored"


def _is_same(start: ExecutionState, tail: list[happened.Event], whole: ExecutionState) -> bool:
    try:
        return _bytes(reduce(evolve, tail, start)) == _bytes(whole)
    except (KeyError, LookupError, TypeError, AttributeError):
        return False


def _bytes(state: ExecutionState) -> bytes:
    return canonical(msgspec.to_builtins(state, enc_hook=repr))


def timers_fire_once_and_never_early(story: Story) -> Iterator[str]:
    """I13."""
    yield from _fired_more_often_than_set(story)
    for before, recorded in story.all_moments():
        event, execution = recorded.event, recorded.execution
        if isinstance(event, happened.TimerFired):
            due_ms = before.timers.get(event.key)
            if due_ms is not None and event.at_ms < due_ms:
                yield f"{execution}: the timer {event.key} fired {due_ms - event.at_ms} ms early"
        elif isinstance(event, happened.StepScheduled) and event.path in before.waiting:
            due_ms = before.waiting[event.path].retry_at_ms
            if event.at_ms < due_ms:
                yield f"{execution} {event.path} was tried again {due_ms - event.at_ms} ms early"
        elif isinstance(event, happened.StepFailed) and event.fault.code == "timeout" and event.worker is None:
            flight = before.in_flight.get(event.path)
            if flight is not None and event.at_ms < flight.at_ms + flight.timeout_ms:
                yield f"{execution} {event.path} was timed out early"
    for execution, state in story.states.items():
        due_ms = next_wakeup(state)
        if due_ms is not None and due_ms + LATE_MS < story.history.at_ms:
            yield f"{execution}: its next moment was {story.history.at_ms - due_ms} ms ago"


def _fired_more_often_than_set(story: Story) -> Iterator[str]:
    """Counted, and not folded: so that a wrong fold cannot hide it."""
    for execution, moments in story.moments.items():
        is_set: set[str] = set()
        for _, recorded in moments:
            event = recorded.event
            if isinstance(event, happened.TimerStarted):
                is_set.add(event.key)
            elif isinstance(event, happened.TimerFired):
                if event.key not in is_set:
                    yield f"{execution}: the timer {event.key} fired and was not set"
                is_set.discard(event.key)


def epochs_of_a_shard_never_go_back(story: Story) -> Iterator[str]:
    """I14."""
    by_shard: dict[int, list[Recorded]] = defaultdict(list)
    for recorded in sorted(story.history.events, key=lambda one: one.position):
        by_shard[recorded.shard].append(recorded)
    for shard, written in by_shard.items():
        for earlier, later in pairwise(written):
            if later.epoch < earlier.epoch:
                yield f"shard {shard}: {later.execution} was written under epoch {later.epoch} after {earlier.epoch}"
    for reign in story.history.reigns:
        for late in by_shard[reign.shard]:
            if late.position > reign.position and late.epoch < reign.epoch:
                yield f"shard {reign.shard}: {late.execution} was written under epoch {late.epoch} during {reign.epoch}"
    for lease in story.history.leases or ():
        newest = max((one.epoch for one in by_shard[lease.shard]), default=0)
        if newest > lease.epoch:
            yield f"shard {lease.shard} is leased under epoch {lease.epoch} and was written under {newest}"


def what_is_committed_is_sent(story: Story) -> Iterator[str]:
    """I15."""
    sent = story.history.sent
    if sent is None:
        return
    for execution, state in story.states.items():
        for flight in () if state.ended else state.in_flight.values():
            waited_ms = story.history.at_ms - flight.at_ms
            if waited_ms > OUTBOX_MS and (execution, flight.path, flight.attempt) not in sent:
                yield f"{execution} {flight.path}: attempt {flight.attempt} was never sent, for {waited_ms} ms"
    for recorded in story.history.events:
        if isinstance(recorded.event, happened.StepSucceeded):
            step = (recorded.execution, recorded.event.path, recorded.event.attempt)
            if step not in sent:
                yield f"{recorded.execution} {recorded.event.path} has a result and was never sent"


def nothing_completes_after_it_was_cancelled(story: Story) -> Iterator[str]:
    """I16."""
    for execution, moments in story.moments.items():
        open_then: set[tuple[str, int]] = set()
        cancelled = False
        for before, recorded in moments:
            event = recorded.event
            if isinstance(event, happened.CancelRequested):
                open_then = {(flight.path, flight.attempt) for flight in before.in_flight.values()}
            elif isinstance(event, happened.ExecutionCancelled | happened.ExecutionTerminated):
                cancelled = True
            elif isinstance(event, happened.StepSucceeded):
                if cancelled or (event.path, event.attempt) in open_then:
                    yield f"{execution} {event.path} succeeded after it was cancelled"
            elif isinstance(event, happened.ExecutionCompleted) and before.ending is not None:
                yield f"{execution} completed after it was cancelled"


def everything_ends_once_nothing_is_broken(story: Story) -> Iterator[str]:
    """I19."""
    history = story.history
    for execution, state in story.states.items() if history.all_end else ():
        if not state.ended:
            under_way = [f"{flight.path}#{flight.attempt}" for flight in state.in_flight.values()]
            yield f"{execution} is still {state.status} at version {state.version}, with {under_way} under way"
    if history.healed_at_ms is None or history.ends_within_ms is None:
        return
    for execution, state in story.states.items():
        if state.ended_at_ms is not None and state.ended_at_ms > history.healed_at_ms + history.ends_within_ms:
            yield f"{execution} ended {state.ended_at_ms - history.healed_at_ms} ms after nothing was broken any more"


def nothing_is_left_behind(story: Story) -> Iterator[str]:
    """I20."""
    yield from story.history.left_behind


Rule = Callable[[Story], Iterator[str]]

INVARIANTS: dict[str, Rule] = {
    "I1": acknowledged_requests_have_their_event,
    "I2": whatever_is_open_can_be_moved,
    "I3": versions_have_no_gap_and_one_end,
    "I4": a_result_is_of_the_current_attempt_and_taken_once,
    "I5": effects_are_of_recorded_attempts_under_one_key,
    "I7": a_key_stands_for_one_execution,
    "I8": every_way_to_the_state_leads_to_the_same,
    "I13": timers_fire_once_and_never_early,
    "I14": epochs_of_a_shard_never_go_back,
    "I15": what_is_committed_is_sent,
    "I16": nothing_completes_after_it_was_cancelled,
    "I19": everything_ends_once_nothing_is_broken,
    "I20": nothing_is_left_behind,
}


def violations(history: History) -> list[Violation]:
    story = Story(history)
    return [Violation(name, what) for name, rule in INVARIANTS.items() for what in rule(story)]


def assert_holds(history: History) -> None:
    """Raises with every broken invariant, so that one look says what kind of trouble it is."""
    found = violations(history)
    assert not found, "\n".join(["invariants do not hold:", *map(str, found)])
