"""A log decided again from its first event to its last, as the control plane does it."""

from collections.abc import Sequence

from agentflow.execution.events import Event, decode, encode
from agentflow.execution.evolve import evolve
from agentflow.execution.program import Program
from agentflow.execution.replay import Divergence, chained, redecide
from agentflow.execution.state import ExecutionState


def replayed(log: Sequence[Event], program: Program) -> tuple[str, Divergence | None]:
    """The digest of what was decided again, and where it leaves the record."""
    recorded = [decode(encode(event)) for event in log]  # as they come out of the database
    state, digest, at = ExecutionState(), "", 0
    while at < len(recorded):
        again = redecide(state, recorded[at:], program)
        if again.divergence is not None:
            return digest, again.divergence
        for event in again.events:
            state, digest = evolve(state, event), chained(digest, event)
        at += len(again.events)
    return digest, None


def digest_of(log: Sequence[Event]) -> str:
    digest = ""
    for event in log:
        digest = chained(digest, event)
    return digest
