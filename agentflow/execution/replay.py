"""Deciding a recorded execution again, and holding what is decided against what was recorded. Pure.

`redecide` takes one decision: the message that led to the next event is made again (`causes`), the program is asked as
it was then, and every event of the answer must be, byte for byte, the next one of the record. Nothing outside is asked:
results, answers, times and delays all come from the record. Of chance only delays were recorded, so the chance that
gives these delays is looked for; where there is none, that is a divergence like any other.

The shell (`control_plane.replay`) reads the record, folds it with `evolve`, and lends claimed values where one is
needed (`ValueNeeded`).
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import Claim, refuse_claims, revealed
from agentflow.errors import Bug
from agentflow.execution import events as happened
from agentflow.execution.causes import Cause, causes
from agentflow.execution.decide import decide
from agentflow.execution.draft import retry_delay_ms
from agentflow.execution.events import Event, encode
from agentflow.execution.messages import ExecutionMessage, Stamp
from agentflow.execution.program import Program
from agentflow.execution.state import ExecutionState

_written = msgspec.json.Encoder(enc_hook=refuse_claims).encode


class Divergence(msgspec.Struct, frozen=True):
    """The first place where deciding again leads elsewhere: `got` was decided where `expected` is recorded.

    `expected` is None where the record ends, `got` where nothing follows any more; then `why` may say more.
    """

    version: int
    path: str  # the step, timer or task it is about; empty where it is about the execution as a whole
    expected: Event | None
    got: Event | None
    why: str = ""


class Redecided(msgspec.Struct, frozen=True):
    """One decision: the events decided, each as the next of the record; or where they leave it."""

    events: tuple[Event, ...] = ()
    divergence: Divergence | None = None
    is_short: bool = False  # more was decided than there is to hold it against: read on, and ask again


def redecide(state: ExecutionState, upcoming: Sequence[Event], program: Program) -> Redecided:
    """`upcoming` are the recorded events that follow `state`, at least one."""
    found: Redecided | None = None
    for cause in causes(state, upcoming):
        again = _decided(state, upcoming, program, cause)
        if again.divergence is None:
            return again
        if found is None or _version(again) > _version(found):
            found = again  # the cause that explains the most
    if found is not None:
        return found
    return Redecided(divergence=_off(state.version + 1, upcoming[0], None, "Nothing that was recorded leads to it."))


def _version(redecided: Redecided) -> int:
    return 0 if redecided.divergence is None else redecided.divergence.version


def _decided(state: ExecutionState, upcoming: Sequence[Event], program: Program, cause: Cause) -> Redecided:
    stamp = Stamp(upcoming[0].at_ms)
    again = _compared(state, upcoming, program, cause, stamp)
    match again.divergence.expected if again.divergence is not None else None:
        case happened.StepExcused():
            stamp = msgspec.structs.replace(stamp, hears=False)
            again = _compared(state, upcoming, program, cause, stamp)
        case happened.StepScheduled(straight=True, agent=agent):
            stamp = msgspec.structs.replace(stamp, straight=agent)
            again = _compared(state, upcoming, program, cause, stamp)
    if again.divergence is None or not isinstance(again.divergence.got, happened.StepFailed):
        return again
    chance = _chance(state, upcoming, program, cause(stamp))
    if chance is None:
        return again
    return _compared(state, upcoming, program, cause, msgspec.structs.replace(stamp, chance=chance))


def _compared(
    state: ExecutionState, upcoming: Sequence[Event], program: Program, cause: Cause, stamp: Stamp
) -> Redecided:
    first = state.version + 1
    try:
        decided = decide(state, cause(stamp), program).events
    except (Bug, LookupError, TypeError, ValueError) as error:  # of a program that was never meant to be here
        why = (
            f"The program cannot answer: {error}" if isinstance(error, Bug) else f"The program cannot answer: {error!r}"
        )
        return Redecided(divergence=_off(first, upcoming[0], None, why))
    if not decided:
        return Redecided(divergence=_off(first, upcoming[0], None, "Nothing follows from what led to it."))
    events: list[Event] = []
    for at, got in enumerate(decided):
        if at == len(upcoming):
            return Redecided(divergence=_off(first + at, None, got, "The record ends here."), is_short=True)
        event = _claimed_alike(upcoming[at], got)
        if encode(upcoming[at]) != encode(event):
            return Redecided(divergence=_off(first + at, upcoming[at], got))
        events.append(event)
    return Redecided(tuple(events))


def _chance(
    state: ExecutionState, upcoming: Sequence[Event], program: Program, message: ExecutionMessage
) -> float | None:
    """A chance with which every delay before another attempt comes out as it was recorded."""
    low, high = 0.0, 1.0
    for recorded, got in zip(upcoming, decide(state, message, program).events, strict=False):
        if not (isinstance(got, happened.StepFailed) and isinstance(recorded, happened.StepFailed)):
            continue
        flight = state.in_flight.get(got.path)
        if flight is None or got.retry_at_ms is None or recorded.retry_at_ms is None or not flight.retry.jitter:
            continue
        most = retry_delay_ms(msgspec.structs.replace(flight.retry, jitter=False), _tried(flight), 0.0)
        waited = recorded.retry_at_ms - recorded.at_ms
        if most > 0:
            low, high = max(low, waited / most), min(high, (waited + 1) / most)
    return (low + high) / 2 if low < high else None


def _tried(flight: happened.StepScheduled) -> int:
    return flight.attempt - flight.first_attempt + 1


def _claimed_alike(recorded: Event, got: Event) -> Event:
    """What was decided, with a claim wherever the record has one on the very same value."""
    changes: dict[str, Any] = {}
    if type(recorded) is not type(got):
        return got
    for name in recorded.__struct_fields__:
        there, here = getattr(recorded, name), getattr(got, name)
        if isinstance(there, Claim):
            changes[name] = _swapped(there, here)
        elif isinstance(there, dict) and isinstance(here, dict) and any(isinstance(it, Claim) for it in there.values()):
            changes[name] = {key: _swapped(there.get(key), value) for key, value in here.items()}
    return msgspec.structs.replace(got, **changes) if changes else got


def _swapped(there: Any, here: Any) -> Any:
    if not isinstance(there, Claim) or isinstance(here, Claim):
        return here
    content = _written(revealed(here))
    same = there.ref == ArtifactRef(hashlib.sha256(content).hexdigest(), len(content))
    return there if same else here


def _off(version: int, expected: Event | None, got: Event | None, why: str = "") -> Divergence:
    places = (place_of(event) for event in (expected, got) if event is not None)
    return Divergence(version, next(filter(None, places), ""), expected, got, why)


def place_of(event: Event) -> str:
    """The step, child, task or key that an event is about; empty for one about the execution as a whole."""
    return str(getattr(event, "path", "") or getattr(event, "key", "") or "")


def chained(digest: str, event: Event) -> str:
    """The digest of a history with one more event: equal digests, equal bytes from the first event on."""
    return hashlib.sha256(digest.encode() + encode(event)).hexdigest()
