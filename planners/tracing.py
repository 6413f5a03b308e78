"""Why an execution went the way it did: every expression that it evaluated, the values it read, and what came out.

Nothing of this is written down while an execution runs. Programs are pure, so the definition, compiled anew with
expressions that tell (`Watched`) and asked again about every recorded outcome, evaluates again what was evaluated.
Called by the control plane for `GET /executions/{id}/evaluations`.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from agentflow.contracts.claims import ValueNeeded
from agentflow.execution import events as happened
from agentflow.execution.draft import Draft, outcome_of
from agentflow.execution.events import Event
from agentflow.execution.evolve import evolve
from agentflow.execution.hearing import heard
from agentflow.execution.messages import Stamp
from agentflow.execution.program import Attentive, Program
from agentflow.execution.state import ExecutionState, Status
from planners.expressions.expression import Trace
from planners.kinds import compile_workflow


class Evaluation(msgspec.Struct, frozen=True):
    """`version` is that of the event which made the program look."""

    version: int
    at_ms: int
    trace: Trace


def evaluations(definition: str, events: Iterable[Event]) -> Iterator[Evaluation]:
    """All of an execution, from its events from the first on."""
    told: list[Trace] = []
    program = compile_workflow(definition, watch=told.append).program
    state = ExecutionState()
    for event in events:
        before, state = state, evolve(state, event)
        with suppress(ValueNeeded):  # told as such: what stands behind a claim is not fetched for a look back
            _ask_again(program, before, state, event)
        yield from (Evaluation(state.version, event.at_ms, trace) for trace in told)
        told.clear()


def _ask_again(program: Program, before: ExecutionState, state: ExecutionState, event: Event) -> None:
    view = Draft(state, program, Stamp(event.at_ms)).view
    if state.status is Status.RUNNING and before.status in (Status.NEW, Status.QUEUED) and before.broken is None:
        program.begin(view())
    for answered in heard(before, event):
        program.advance(view(), outcome_of(answered))
    looks = isinstance(event, happened.VarsUpdated | happened.ExecutionResumed) and state.status is Status.RUNNING
    if looks and isinstance(program, Attentive):
        program.noticed(view())
