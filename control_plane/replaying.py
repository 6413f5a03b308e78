"""Replay as the control plane offers it: which executions, and decided by what. Joins the record and the registry."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.errors import NotFound
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import Shelf
from control_plane.jobs.runner import Handler
from control_plane.registry.executions import ExecutionFilter, ExecutionPages
from control_plane.registry.schemas import InputSchema, compile_schema, input_problems
from control_plane.registry.workflows import WorkflowNotFound, WorkflowRegistry
from control_plane.replay.many import ManyReplays, ReplayRequest
from control_plane.replay.replayer import Candidate, Record, Recording, Replayed, Replayer
from control_plane.snapshots.book import Snapshots
from control_plane.snapshots.reading import RecordOfSnapshot
from control_plane.snapshots.snapshot import SNAPSHOT_ID, SnapshotNotFound

JOB = "replay"
_OVER = ("completed", "failed", "cancelled")


class NothingRecorded(NotFound):
    code = "AF1282"

    def __init__(self, execution: str, workflow: str) -> None:
        super().__init__(
            f"There is no execution {execution!r} of workflow `{workflow}`.",
            hint="List them with `af executions list --workflow NAME`.",
        )


class Replays:
    def __init__(
        self,
        record: Record,
        snapshots: Snapshots,
        registry: WorkflowRegistry,
        executions: ExecutionPages,
        claims: ClaimCheck,
    ) -> None:
        replayer = Replayer(self._recording, registry.program, claims)
        self._record = record
        self._snapshots = snapshots
        self._replayer = replayer
        self._registry = registry
        self._executions = executions
        self.many = ManyReplays(replayer, newest=self.newest, candidate_of=self.candidate)
        self.jobs: dict[str, Handler] = {JOB: self.many.run}  # what a job of each kind does

    async def one(self, tenant: TenantId, wanted: ReplayRequest) -> Replayed:
        """Raises `NothingRecorded`, or what keeps the other version from being compiled."""
        (execution,) = wanted.executions
        against = await self.candidate(tenant, wanted)
        found = await self._replayer.replay(tenant, execution, against=against)
        if found is None or found.workflow.name != wanted.workflow:
            raise NothingRecorded(execution, wanted.workflow)
        return found

    async def _recording(self, tenant: TenantId, name: str) -> Recording | None:
        if not name.startswith(SNAPSHOT_ID):
            execution = ExecutionId(name)
            return Recording(execution, self._record, Shelf(tenant, execution))
        try:
            snapshot = await self._snapshots.find(tenant, name)
        except SnapshotNotFound:
            return None
        record = RecordOfSnapshot(name, self._snapshots.content(snapshot))
        return Recording(snapshot.execution, record, snapshot.shelf)

    async def newest(self, tenant: TenantId, workflow: str, count: int) -> Sequence[ExecutionId]:
        """Of those that are over: the last ones, of whatever version."""
        if count == 0:
            return ()
        wanted = ExecutionFilter(workflow=workflow, statuses=_OVER)
        page = await self._executions.page(tenant, wanted, limit=count, after=None, newest_first=True)
        return [summary.id for summary in page.items]

    async def registered(self, tenant: TenantId, definition: str) -> bool:
        """Whether exactly this is registered."""
        ref, _, _ = await self._registry.candidate(definition)
        try:
            return (await self._registry.find(tenant, f"{ref.name}@{ref.version}")).digest == ref.digest
        except WorkflowNotFound:
            return False

    async def candidate(self, tenant: TenantId, wanted: ReplayRequest) -> Candidate | None:
        """The version to decide by, where it is not each execution's own."""
        if wanted.definition is not None:
            ref, program, schema = await self._registry.candidate(wanted.definition)
            return Candidate(ref, program, partial(_refusal, schema))
        if wanted.against is None:
            return None
        workflow = await self._registry.find(tenant, f"{wanted.workflow}@{wanted.against}")
        given = workflow.definition["spec"].get("input")
        schema = None if given is None else compile_schema(given)
        ref = await self._registry.ref(tenant, workflow)
        return Candidate(ref, await self._registry.program(tenant, workflow.ref), partial(_refusal, schema))


def _refusal(schema: InputSchema | None, input: Any) -> str:
    problems = [] if schema is None else input_problems(schema, input)
    return f"It does not take the input: {'; '.join(map(str, problems))}" if problems else ""
