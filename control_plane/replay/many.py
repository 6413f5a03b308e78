"""Many executions of a workflow, one after the other: what a job does that is asked for a replay.

Of each it is told whether it came out as it was, and where not; what exactly was expected there is told when that
execution is replayed alone, so that no input or output is kept with the job.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from agentflow.execution.events import Event, type_of
from agentflow.execution.replay import Divergence
from agentflow.ids import TenantId
from control_plane.replay.replayer import Candidate, Replayed, Replayer


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`executions`, or snapshots of some, or the `last` ones that are over; decided by a version or a `definition`."""

    workflow: str
    executions: tuple[str, ...] = ()
    last: int = 0
    against: str | None = None
    definition: str | None = None


Newest = Callable[[TenantId, str, int], Awaitable[Sequence[str]]]
CandidateOf = Callable[[TenantId, ReplayRequest], Awaitable[Candidate | None]]


class ManyReplays:
    def __init__(self, replayer: Replayer, *, newest: Newest, candidate_of: CandidateOf) -> None:
        self._replayer = replayer
        self._newest = newest
        self._candidate_of = candidate_of

    async def run(
        self, tenant: TenantId, request: dict[str, Any], progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        wanted = msgspec.convert(request, ReplayRequest)
        against = await self._candidate_of(tenant, wanted)
        executions = wanted.executions or await self._newest(tenant, wanted.workflow, wanted.last)
        replays: list[dict[str, Any]] = []
        for execution in executions:
            progress(len(replays), len(executions))
            found = await self._replayer.replay(tenant, execution, against=against)
            if found is not None:  # retention may have taken it meanwhile
                replays.append(summary(found))
        progress(len(executions), len(executions))
        diverged = sum(not one["identical"] for one in replays)
        return {"replayed": len(replays), "identical": len(replays) - diverged, "diverged": diverged, "items": replays}


def summary(found: Replayed) -> dict[str, Any]:
    """Everything but values."""
    return {
        "execution_id": found.execution,
        "workflow": _named(found.workflow.name, found.workflow.version),
        "against": None if found.against is None else _named(found.against.name, found.against.version),
        "identical": found.identical,
        "events": found.version,
        "agreed": found.agreed,
        "digest": found.digest,
        "divergence": None if found.divergence is None else place(found.divergence),
    }


def place(divergence: Divergence) -> dict[str, Any]:
    return {
        "version": divergence.version,
        "path": divergence.path,
        "expected": _type(divergence.expected),
        "got": _type(divergence.got),
        "fields": list(differing(divergence)),
        "reason": divergence.why,
    }


def differing(divergence: Divergence) -> Sequence[str]:
    """The fields that differ, where both are events of one kind."""
    expected, got = divergence.expected, divergence.got
    if expected is None or type(expected) is not type(got):
        return ()
    return [name for name in expected.__struct_fields__ if getattr(expected, name) != getattr(got, name)]


def _type(event: Event | None) -> str | None:
    return None if event is None else type_of(event)


def _named(name: str, version: str) -> str:
    return f"{name}@{version}"
