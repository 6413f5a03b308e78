"""Takes a snapshot: from what is stored of an execution, a page at a time, onto a shelf of its own.

The row that lists it is written last. Whoever dies before it leaves a shelf that belongs to nothing, which the purge
removes like any other, so a snapshot is there whole or not at all. Each attempt has a shelf of its own; of two that
take the same one at once the first row stands, and both have made the same bytes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from agentflow.contracts import snapshot as content
from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import claims_in
from agentflow.errors import Bug
from agentflow.execution import events as happened
from agentflow.execution.events import Event, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, encode_state
from agentflow.ids import ExecutionId, StepPath, TenantId
from agentflow.limits import SNAPSHOT_CHUNK_BYTES, SNAPSHOT_EVENTS_AT_ONCE
from agentflow.ports import ArtifactDamaged, ArtifactLost, ArtifactStore, Shelf
from agentflow.workflow.references import agents_named
from control_plane.audit.notes import concerning
from control_plane.registry.executions import ListedWorkflow
from control_plane.registry.workflows import RegisteredWorkflow
from control_plane.snapshots.snapshot import SNAPSHOT_ID, HistoryGone, Snapshot, SnapshotStore, shelf_of

_log = structlog.get_logger(__name__)


class RecordedEvents(Protocol):
    async def recorded(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int, limit: int
    ) -> Sequence[bytes]:
        """Events as they were written, in order."""
        ...


class SpentOn(Protocol):
    async def of_execution(self, tenant: TenantId, execution: ExecutionId) -> Sequence[content.Spent]:
        """In the order of paths and attempts."""
        ...


Definition = Callable[[TenantId, str], Awaitable[RegisteredWorkflow]]


class Taking:
    def __init__(
        self,
        *,
        store: SnapshotStore,
        events: RecordedEvents,
        costs: SpentOn,
        definition: Definition,
        artifacts: ArtifactStore,
        new_id: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._events = events
        self._costs = costs
        self._definition = definition
        self._artifacts = artifacts
        self._new_id = new_id
        self._now_ms = now_ms

    async def take(self, tenant: TenantId, execution: ExecutionId, version: int) -> tuple[Snapshot, bool]:
        """The snapshot of an execution at a version, and whether it is new. Raises `HistoryGone`."""
        there = await self._store.of_version(tenant, execution, version)
        if there is not None:
            return _on_record(there), False
        name = f"{SNAPSHOT_ID}{self._new_id()}"
        shelf = shelf_of(tenant, name)
        making = _Making(self._events, self._costs, self._definition, tenant, execution, version)
        chunks = _in_chunks(making.lines(lambda claimed: self._kept(Shelf(tenant, execution), shelf, claimed)))
        ref = await self._artifacts.put(shelf, chunks)
        made = Snapshot(
            tenant=tenant,
            id=name,
            execution=execution,
            version=version,
            workflow=making.workflow,
            status=making.state.status,
            ended_at_ms=making.state.ended_at_ms,
            digest=ref.sha256,
            bytes=ref.bytes,
            created_at_ms=self._now_ms(),
        )
        stored = await self._store.add(_on_record(made))
        if stored.id != name:
            await self._artifacts.drop(shelf)
        return _on_record(stored), stored.id == name

    async def _kept(self, origin: Shelf, target: Shelf, value: ArtifactRef) -> bool:
        """Whether a large value now lies beside the snapshot too. One that nobody has any more is named as lost."""
        try:
            await self._artifacts.put(target, self._artifacts.stream(origin, value))
        except (ArtifactLost, ArtifactDamaged) as error:
            _log.warning("snapshot.value_lost", snapshot=target.owner, execution=origin.owner, reason=error.message)
            return False
        return True


class _Making:
    """What is learned of an execution while its lines are made: the state, what it is pinned to, its large values."""

    def __init__(
        self,
        events: RecordedEvents,
        costs: SpentOn,
        definition: Definition,
        tenant: TenantId,
        execution: ExecutionId,
        version: int,
    ) -> None:
        self._events = events
        self._costs = costs
        self._definition = definition
        self._tenant = tenant
        self._execution = execution
        self._version = version
        self.state = ExecutionState()
        self._pinned: list[WorkflowRef] = []
        self._ended: set[tuple[StepPath, int]] = set()  # attempts
        self._values: dict[ArtifactRef, bool] = {}  # in the order in which they appear; whether they could be kept

    async def lines(self, keep: Callable[[ArtifactRef], Awaitable[bool]]) -> AsyncIterator[bytes]:
        async for event, raw in self._recorded():
            if not self.state.version:
                yield content.line("snapshot", self._head(event))
            self.state = evolve(self.state, event)
            self._notice(event)
            for claim in claims_in(event):
                if claim.ref not in self._values:
                    self._values[claim.ref] = await keep(claim.ref)
            yield content.event_line(self.state.version, raw)
        for ref in self._pinned:
            yield content.line("workflow", await self._definition_of(ref))
        for spent in await self._costs.of_execution(self._tenant, self._execution):
            if (spent.path, spent.attempt) in self._ended:
                yield content.line("cost", spent)
        yield content.written("state", encode_state(self.state))
        kept = [ref for ref, there in self._values.items() if there]
        lost = [ref for ref, there in self._values.items() if not there]
        yield content.line("end", content.End(events=self._version, values=kept, lost=lost))

    @property
    def workflow(self) -> ListedWorkflow:
        newest = self._pinned[-1]
        return ListedWorkflow(newest.id, newest.name, newest.version)

    async def _recorded(self) -> AsyncIterator[tuple[Event, bytes]]:
        """Few at a time: executions under way share this loop, and go on between."""
        read = 0
        while read < self._version:
            at_once = min(SNAPSHOT_EVENTS_AT_ONCE, self._version - read)
            page = await self._events.recorded(self._tenant, self._execution, after_version=read, limit=at_once)
            for raw in page:
                yield happened.decode(raw), raw
            read += len(page)
            if len(page) < at_once:
                raise HistoryGone(self._execution, self._version)

    def _head(self, started: Event) -> content.Head:
        if not isinstance(started, happened.ExecutionStarted):
            raise Bug(f"The record of {self._execution} does not begin with its start.")
        return content.Head(
            format=content.FORMAT,
            tenant=self._tenant,
            execution=self._execution,
            version=self._version,
            trace=started.trace,
        )

    def _notice(self, event: Event) -> None:
        match event:
            case happened.ExecutionStarted(workflow=ref) | happened.ExecutionMoved(workflow=ref):
                self._pinned.append(ref)
            case happened.StepSucceeded(path=path, attempt=attempt) | happened.StepFailed(path=path, attempt=attempt):
                self._ended.add((path, attempt))
            case _:
                pass

    async def _definition_of(self, ref: WorkflowRef) -> content.Pinned:
        workflow = await self._definition(self._tenant, ref.id)
        return content.Pinned(
            id=ref.id,
            name=ref.name,
            version=ref.version,
            digest=ref.digest,
            tools=ref.tools,
            agents=sorted(agents_named(workflow.definition)),
            source=workflow.source,
        )


def _on_record(snapshot: Snapshot) -> Snapshot:
    """What a request that takes it is on record for, where it is one."""
    concerning("snapshot", snapshot.id, execution=snapshot.execution, version=snapshot.version, digest=snapshot.digest)
    return snapshot


async def _in_chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Some lines together: each chunk is compressed and written by a thread."""
    held: list[bytes] = []
    size = 0
    async for line in lines:
        held.append(line)
        size += len(line)
        if size >= SNAPSHOT_CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)
