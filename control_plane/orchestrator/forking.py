"""What somebody wants of a fork, and what of the original's history it gets (by the rules of `execution.fork`).

Called by the service. Reads no more than one fork may take over, and gives it every large value on a shelf of its own.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.errors import Conflict
from agentflow.execution.events import Event, ForkOf
from agentflow.execution.fork import Kept, NoSuchPlace, Written, kept_after, kept_before
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath
from agentflow.ports import Shelf


class NothingToForkAt(Conflict):
    code = "AF1227"

    def __init__(self, execution: str, reason: str) -> None:
        super().__init__(
            f"Execution {execution} cannot be forked there: {reason}.",
            hint="`af executions show --events` lists the paths of its steps; the second time round is `step~2`.",
        )


class TooLongToFork(Conflict):
    code = "AF1228"

    def __init__(self, execution: str) -> None:
        super().__init__(
            f"Execution {execution} has more than {limits.FORK_EVENTS_MAX} events before that place.",
            hint="Fork it at an earlier step, or start its workflow anew.",
        )


class ForkWanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where to part from the original, and what is different there. An `input` is only for `from`, an `output` only
    for `after`."""

    path: StepPath
    going: Literal["from", "after"]
    input: Any = msgspec.UNSET
    output: Any = msgspec.UNSET
    vars: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""

    @property
    def edited(self) -> tuple[str, ...]:
        return tuple(name for name in ("input", "output", "vars") if getattr(self, name) is not msgspec.UNSET)


class Parting(msgspec.Struct, frozen=True):
    """All that the first decision of a fork needs to know of its original."""

    of: ForkOf
    kept: Kept
    input: Any = None
    vars: dict[str, Any] = {}
    reason: str = ""


async def parting(
    original: ExecutionState, events: Sequence[Event], wanted: ForkWanted, fork: ExecutionId, claims: ClaimCheck
) -> Parting:
    """Raises `NothingToForkAt`, or `TooLongToFork` where the place may lie behind what was read."""
    its = Shelf(original.tenant, fork)
    given = {name: await claims.checked(its, getattr(wanted, name)) for name in wanted.edited if name != "vars"}
    try:
        kept = _kept(events, wanted, Written(given["output"]) if "output" in given else None)
    except NoSuchPlace as nowhere:
        if len(events) > limits.FORK_EVENTS_MAX:
            raise TooLongToFork(original.execution) from None
        raise NothingToForkAt(original.execution, str(nowhere)) from None
    if len(kept.events) > limits.FORK_EVENTS_MAX:
        raise TooLongToFork(original.execution)
    for event in kept.events:
        await claims.handed_over(event, origin=Shelf(original.tenant, original.execution), target=its)
    return Parting(
        of=ForkOf(original.execution, kept.version, wanted.path, wanted.going, wanted.edited),
        kept=kept,
        input=given.get("input"),
        vars=wanted.vars or {},
        reason=wanted.reason,
    )


def _kept(events: Sequence[Event], wanted: ForkWanted, written: Written | None) -> Kept:
    if wanted.going == "from":
        return kept_before(events, wanted.path)
    return kept_after(events, wanted.path, written)
