"""Asks the pure heart for a decision, and fetches the large values it turns out to need.

Called by the commit loop for one execution at a time, so at most one decision's values are in memory. What is decided
leaves with its own large values claimed: neither the history, nor the state kept here, nor the bus ever holds one.
"""

from functools import reduce
from typing import Any

import msgspec

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.contracts.claims import Claim, ValueNeeded, claims_in
from agentflow.contracts.step import StepFault
from agentflow.execution.decide import Decision, decide
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import ChildEnded, ExecutionMessage, StepReported, TimeReached
from agentflow.execution.program import Program
from agentflow.execution.state import ExecutionState
from agentflow.ports import ArtifactDamaged, ArtifactLost, Shelf
from control_plane.orchestrator.children import child_id


async def decision_for(
    state: ExecutionState, message: ExecutionMessage, program: Program, claims: ClaimCheck | None, shelf: Shelf
) -> Decision:
    """Without a claim check everything stays inline, whatever its size."""
    if claims is None:
        return decide(state, message, program)
    if not isinstance(message, StepReported | TimeReached):  # the worker has claimed what a report brings
        message = await claims.checked_fields(shelf, message)
    if isinstance(message, ChildEnded) and any(claims_in(message.output)):
        message = await _taken_over(state, message, claims, shelf)
    lent: list[Claim] = []
    try:
        while True:
            try:
                return await _claimed(state, decide(state, message, program), claims, shelf)
            except ValueNeeded as needed:
                await claims.lend(shelf, needed.claim)
                lent.append(needed.claim)
    finally:
        for claim in lent:
            claim.take_back()


async def _taken_over(state: ExecutionState, ended: ChildEnded, claims: ClaimCheck, shelf: Shelf) -> ChildEnded:
    """What a child answered with lies on its shelf, and must not go with it."""
    origin = Shelf(shelf.tenant, child_id(state, ended.path))
    try:
        await claims.handed_over(ended.output, origin=origin, target=shelf)
    except (ArtifactLost, ArtifactDamaged) as error:
        return ChildEnded(ended.stamp, ended.path, fault=StepFault("artifact_lost", error.message))
    return ended


async def _claimed(before: ExecutionState, decision: Decision, claims: ClaimCheck, shelf: Shelf) -> Decision:
    events = [await claims.checked_fields(shelf, event) for event in decision.events]
    if all(new is old for new, old in zip(events, decision.events, strict=True)):
        return decision
    swapped: dict[int, Any] = {}
    for old, new in zip(decision.events, events, strict=True):
        for name in old.__struct_fields__:
            if getattr(old, name) is not getattr(new, name):
                swapped[id(getattr(old, name))] = getattr(new, name)
    commands = tuple(_swapped(command, swapped) for command in decision.commands)
    return Decision(reduce(evolve, events, before), tuple(events), commands)


def _swapped(command: Any, swapped: dict[int, Any]) -> Any:
    """A command carries the very objects its event does."""
    changes = {
        name: swapped[id(getattr(command, name))]
        for name in command.__struct_fields__
        if id(getattr(command, name)) in swapped
    }
    return msgspec.structs.replace(command, **changes) if changes else command
