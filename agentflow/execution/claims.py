"""The rules of a call that must not be made twice: claimed before it is made, doubted when its end is not known.

Part of a `Draft`, which knows how to record and to retry; nothing here is asked about a step that was never claimed.
An attempt that ends without a word about the call is followed by one that only asks (`in_doubt`): a tool that can look
whether it was done answers, and otherwise a person does. A result that was lost and turns up settles it as well,
because nobody else can have made the call.
"""

from typing import Any, Protocol

from agentflow import limits
from agentflow.contracts.step import IN_DOUBT, NOT_DONE, TELLS_NOTHING, StepFault
from agentflow.execution import events as happened
from agentflow.execution.events import Answered, Event, StepScheduled
from agentflow.execution.evolve import settled_fault
from agentflow.execution.messages import ClaimStep, StepReported
from agentflow.execution.state import Claimed, ExecutionState, key_of
from agentflow.ids import StepPath, WorkerId


class Drafting(Protocol):
    """What these rules need of the decision in the making."""

    state: ExecutionState
    now: int

    def record(self, event: Event) -> None: ...

    def tell(self, *answered: Answered) -> None: ...

    def try_afresh(self, last: StepScheduled) -> None: ...

    def hand_on(
        self,
        flight: StepScheduled,
        lost: int,
        fault: StepFault,
        worker: WorkerId | None,
        *,
        claim_over: bool = False,
    ) -> None: ...

    def fail_or_retry(
        self, flight: StepScheduled, fault: StepFault, worker: WorkerId | None, *, claim_over: bool = False
    ) -> None: ...


def claim(draft: Drafting, message: ClaimStep) -> None:
    """Granted once, to the attempt that is current; whoever asks too late finds another one, or none, in the state."""
    flight = draft.state.in_flight.get(message.path)
    if flight is None or flight.attempt != message.attempt or message.path in draft.state.claimed:
        return
    draft.record(
        happened.StepClaimed(draft.now, message.path, message.attempt, message.worker, message.id, message.undone)
    )


def attempt_failed(
    draft: Drafting, flight: StepScheduled, fault: StepFault, worker: WorkerId | None, claimed: Claimed
) -> None:
    lost = flight.lost + 1
    if fault.code == NOT_DONE and lost <= limits.STEP_LOST_MAX:
        draft.hand_on(flight, lost, fault, worker, claim_over=True)
    elif fault.code in TELLS_NOTHING or flight.in_doubt:
        if fault.code == IN_DOUBT or lost > limits.STEP_LOST_MAX:
            draft.record(happened.StepDoubted(draft.now, flight.path, flight.attempt, fault))
        else:
            draft.hand_on(flight, lost, fault, worker)
    elif claimed.undone:
        draft.fail_or_retry(flight, fault, worker, claim_over=True)
    else:
        once = StepFault(fault.code, fault.message)  # it may be tried again by nobody but a person
        draft.fail_or_retry(flight, once, worker)


def settle(draft: Drafting, path: StepPath, answer: Any) -> None:
    """What a person says about it; an answer of another form changes nothing."""
    said = answer if isinstance(answer, dict) else {}
    resolution, step = said.get("resolution"), draft.state.doubts[path].step
    if resolution not in ("done", "retry", "fail") or (resolution == "retry" and draft.state.paused_at_ms is not None):
        return
    output = said.get("output") if resolution == "done" else None
    settled = happened.DoubtSettled(draft.now, path, resolution, output, str(said.get("reason") or ""))
    draft.record(settled)
    if resolution == "done":
        draft.tell(Answered("step", key_of(path), path, step.name, output))
    elif resolution == "fail":
        draft.tell(Answered("step", key_of(path), path, step.name, fault=settled_fault(settled)))
    else:
        draft.try_afresh(step)


def turned_up(draft: Drafting, message: StepReported) -> None:
    """The result of the attempt that had made the call, after it was given up."""
    path = message.path
    made, doubt = draft.state.claimed.get(path), draft.state.doubts.get(path)
    asking = draft.state.in_flight.get(path) if doubt is None else doubt.step
    if made is None or asking is None or made.attempt != message.attempt or message.fault is not None:
        return
    draft.record(
        happened.StepSucceeded(
            at_ms=draft.now,
            path=path,
            attempt=message.attempt,
            output=message.output,
            worker=message.worker,
            started_at_ms=message.started_at_ms,
            finished_at_ms=message.finished_at_ms,
            workspace=message.workspace,
        )
    )
    draft.tell(Answered("step", key_of(path), path, asking.name, message.output))
