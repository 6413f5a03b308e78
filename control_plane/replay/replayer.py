"""One execution, decided again from its first event to its last.

Shares the loop with the executions under way, so it gives way to them every few decisions; and reads its record a page
at a time, so a history of any length fits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.contracts.claims import ValueNeeded
from agentflow.execution import events as happened
from agentflow.execution.events import Event, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.program import Program
from agentflow.execution.replay import Divergence, Redecided, chained, redecide
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import Shelf, StoredEvent


class Record(Protocol):
    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]: ...


class Candidate(msgspec.Struct, frozen=True):
    """Another version than the one an execution was pinned to."""

    ref: WorkflowRef
    program: Program
    refusal: Callable[[Any], str]  # why it would not have taken an input; empty where it would


class Replayed(msgspec.Struct, frozen=True):
    """What came of it. `digest` is over every decision that came out as it is recorded."""

    execution: ExecutionId
    shelf: Shelf  # where its large values lie
    workflow: WorkflowRef
    version: int  # how many events there are, as far as it was read
    agreed: int
    digest: str
    against: WorkflowRef | None = None
    divergence: Divergence | None = None

    @property
    def identical(self) -> bool:
        return self.divergence is None


class Recording(msgspec.Struct, frozen=True):
    """Where an execution is on record: in its history, or in a snapshot that was taken of it."""

    execution: ExecutionId
    record: Record
    shelf: Shelf


ProgramOf = Callable[[TenantId, WorkflowRef], Awaitable[Program]]
RecordingOf = Callable[[TenantId, str], Awaitable[Recording | None]]


class Replayer:
    def __init__(self, recording_of: RecordingOf, program_of: ProgramOf, claims: ClaimCheck) -> None:
        self._recording_of = recording_of
        self._program_of = program_of
        self._claims = claims

    async def replay(self, tenant: TenantId, name: str, *, against: Candidate | None = None) -> Replayed | None:
        """`name` is an execution's or a snapshot's. None where nothing is recorded under it."""
        recording = await self._recording_of(tenant, name)
        if recording is None:
            return None
        execution, shelf = recording.execution, recording.shelf
        record = _Reading(recording.record, tenant, execution, None if against is None else against.ref)
        await record.ahead()
        if not record.upcoming:
            return None
        state, digest, decisions = ExecutionState(), "", 0
        divergence = await self._refused(against, record, shelf)
        while record.upcoming and divergence is None:
            program = await self._program(tenant, state, record.upcoming[0], against)
            again = await self._redecided(state, record.upcoming, program, shelf)
            if _shows_later(again, record.upcoming[0]) and await record.more():
                continue
            divergence = again.divergence
            for event, decided in zip(record.taken(len(again.events)), again.events, strict=True):
                state, digest = evolve(state, event), chained(digest, decided)
            await record.ahead()
            decisions += 1
            if decisions % limits.REPLAY_SLICE == 0:
                await asyncio.sleep(0)
        return Replayed(
            execution=execution,
            shelf=shelf,
            workflow=record.workflow,
            version=record.version,
            agreed=state.version if divergence is None else divergence.version - 1,
            digest=digest,
            against=None if against is None else against.ref,
            divergence=divergence,
        )

    async def _refused(self, against: Candidate | None, record: "_Reading", shelf: Shelf) -> Divergence | None:
        """Another version may not even take the input."""
        started = record.upcoming[0]
        if against is None or not isinstance(started, happened.ExecutionStarted):
            return None
        why = against.refusal(await self._claims.whole(shelf, started.input))
        return Divergence(1, "", started, None, why) if why else None

    async def _program(
        self, tenant: TenantId, state: ExecutionState, event: Event, against: Candidate | None
    ) -> Program:
        if against is not None:
            return against.program
        pinned = state.workflow
        if isinstance(event, happened.ExecutionStarted | happened.ExecutionMoved):
            pinned = event.workflow
        assert pinned is not None, "nothing but a start comes first"
        return await self._program_of(tenant, pinned)

    async def _redecided(
        self, state: ExecutionState, upcoming: Sequence[Event], program: Program, shelf: Shelf
    ) -> Redecided:
        lent = []
        try:
            while True:
                try:
                    return redecide(state, upcoming, program)
                except ValueNeeded as needed:
                    await self._claims.lend(shelf, needed.claim)
                    lent.append(needed.claim)
        finally:
            for claim in lent:
                claim.take_back()


def _shows_later(again: Redecided, event: Event) -> bool:
    """Whether more of the record may change the answer: it was held against too little, or what led to it (a fork, a
    cancellation) shows in a later event."""
    if again.divergence is None:
        return False
    return again.is_short or isinstance(event, happened.ExecutionStarted | happened.ExecutionResumed)


class _Reading:
    """A record, page by page. Replayed against another version, it is read as if it had been pinned to that."""

    def __init__(self, record: Record, tenant: TenantId, execution: ExecutionId, ref: WorkflowRef | None) -> None:
        self._record = record
        self._tenant = tenant
        self._execution = execution
        self._ref = ref
        self.upcoming: list[Event] = []
        self.version = 0  # of the newest event that was read
        self._is_read = False
        self._workflow: WorkflowRef | None = None

    @property
    def workflow(self) -> WorkflowRef:
        """What the execution is pinned to."""
        assert self._workflow is not None, "an execution begins with its start"
        return self._workflow

    async def ahead(self) -> None:
        """What led to an event may show in those behind it: always have some of them."""
        if len(self.upcoming) < limits.EVENTS_PAGE_MAX:
            await self.more()

    async def more(self) -> bool:
        """Read on. False at the end of what is recorded."""
        if self._is_read:
            return False
        page = await self._record.read(
            self._tenant, self._execution, after_version=self.version, limit=limits.EVENTS_PAGE_MAX
        )
        for stored in page:
            event = stored.event
            if isinstance(event, happened.ExecutionStarted | happened.ExecutionMoved):
                self._workflow = event.workflow
                event = event if self._ref is None else msgspec.structs.replace(event, workflow=self._ref)
            self.upcoming.append(event)
            self.version = stored.version
        self._is_read = len(page) < limits.EVENTS_PAGE_MAX
        return bool(page)

    def taken(self, count: int) -> list[Event]:
        taken = self.upcoming[:count]
        del self.upcoming[:count]
        return taken
