"""What somebody wants of a fork, and what of the original's history it gets (by the rules of `execution.fork`).

Called by the service. Reads no more than one fork may take over, and gives it every large value,
and the workspace as it was there, on a shelf of its own.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.workspaces import handed_over
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.errors import Conflict
from agentflow.execution.events import Event, ForkOf
from agentflow.execution.fork import Kept, NoSuchPlace, Written, kept_after, kept_before
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath
from agentflow.ports import ArtifactDamaged, ArtifactLost, ArtifactStore, Shelf


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


class WorkspaceGone(Conflict):
    code = "AF1286"

    def __init__(self, execution: str, path: str, reason: str) -> None:
        super().__init__(
            f"The workspace of execution {execution} as it was at `{path}` cannot be had: {reason}",
            hint="Fork at a later step, or before the first one that had a workspace.",
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
    workspace: WorkspaceLeft | None = None


async def parting(
    original: ExecutionState,
    events: Sequence[Event],
    wanted: ForkWanted,
    fork: ExecutionId,
    *,
    claims: ClaimCheck,
    artifacts: ArtifactStore,
    ancestors: Sequence[ExecutionId] = (),
) -> Parting:
    """Raises `NothingToForkAt`, or `TooLongToFork` where the place may lie behind what was read.

    Of `ancestors`, whose fork the original is itself, it may have taken over what they have on their shelves.
    """
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
        workspace=await _workspace(original, kept, wanted.path, fork, artifacts, ancestors),
    )


async def _workspace(
    original: ExecutionState,
    kept: Kept,
    path: StepPath,
    fork: ExecutionId,
    artifacts: ArtifactStore,
    ancestors: Sequence[ExecutionId],
) -> WorkspaceLeft | None:
    left = kept.workspace
    if left is None:
        return None
    for origin in (original.execution, *ancestors):
        try:
            return await handed_over(artifacts, left, tenant=original.tenant, origin=origin, target=fork)
        except ArtifactLost:
            continue
        except ArtifactDamaged as damaged:
            raise WorkspaceGone(original.execution, path, damaged.message) from damaged
    raise WorkspaceGone(original.execution, path, "it is kept no more.")


def _kept(events: Sequence[Event], wanted: ForkWanted, written: Written | None) -> Kept:
    if wanted.going == "from":
        return kept_before(events, wanted.path)
    return kept_after(events, wanted.path, written)
