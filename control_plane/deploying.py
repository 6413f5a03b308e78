"""A new version is tried on what its workflow has done before it is registered: the last executions are decided again
by it, and where one would have gone another way, somebody has to accept that, with a reason that is kept.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from agentflow.ids import TenantId, WorkflowId
from agentflow.workflow.load import read
from agentflow.workflow.references import agents_named
from control_plane.identity.tenants import Tenants
from control_plane.jobs.runner import Handler, Progress
from control_plane.registry.workflows import RegisteredWorkflow, WorkflowRegistry
from control_plane.replay.many import ReplayRequest
from control_plane.replaying import Replays

JOB = "deploy"


class DeploymentRequest(msgspec.Struct, frozen=True, kw_only=True):
    definition: str
    workflow: str  # its name, as the definition says
    by: str
    last: int
    accept_divergence: str | None = None


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """How a version came to be registered: who wanted it, what it was tried on, and why it was taken all the same."""

    tenant: TenantId
    workflow_id: WorkflowId
    name: str
    version: str
    by: str
    replayed: int
    diverged: int
    reason: str
    at_ms: int


class DeploymentStore(Protocol):
    async def add(self, deployment: Deployment) -> None:
        """Once for a version: what is there stays."""
        ...

    async def of_workflow(self, tenant: TenantId, name: str, *, limit: int) -> Sequence[Deployment]:
        """Newest first."""
        ...


Register = Callable[[TenantId, str], Awaitable[tuple[RegisteredWorkflow, bool]]]


class Deployments:
    def __init__(
        self, store: DeploymentStore, replays: Replays, *, register: Register, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._replays = replays
        self._register = register
        self._now_ms = now_ms
        self.jobs: dict[str, Handler] = {JOB: self.run}
        self.of_workflow = store.of_workflow

    async def run(self, tenant: TenantId, request: dict[str, Any], progress: Progress) -> dict[str, Any]:
        wanted = msgspec.convert(request, DeploymentRequest)
        known = await self._replays.registered(tenant, wanted.definition)
        last = 0 if known else wanted.last  # what is there already changes nothing
        replay = ReplayRequest(workflow=wanted.workflow, last=last, definition=wanted.definition)
        replays = await self._replays.many.run(tenant, msgspec.to_builtins(replay), progress)
        if replays["diverged"] and wanted.accept_divergence is None:
            return {"registered": False, "workflow": None, "created": False, "replays": replays}
        workflow, created = await self._register(tenant, wanted.definition)
        if not known:
            await self._record(wanted, workflow, replays)
        named = {"id": workflow.id, "name": workflow.name, "version": workflow.version}
        return {"registered": True, "workflow": named, "created": created, "replays": replays}

    async def _record(self, wanted: DeploymentRequest, workflow: RegisteredWorkflow, replays: dict[str, Any]) -> None:
        await self._store.add(
            Deployment(
                tenant=workflow.tenant,
                workflow_id=workflow.id,
                name=workflow.name,
                version=workflow.version,
                by=wanted.by,
                replayed=replays["replayed"],
                diverged=replays["diverged"],
                reason=wanted.accept_divergence or "",
                at_ms=self._now_ms(),
            )
        )


async def register_within_quota(
    tenants: Tenants, registry: WorkflowRegistry, tenant: TenantId, text: str, *, newest: str | None = None
) -> tuple[RegisteredWorkflow, bool]:
    """The workflow, and whether it is new; refused where the tenant's quota is full."""
    loaded = read(text).loaded
    if loaded is not None:
        named = frozenset(agents_named(loaded.document.data))
        await tenants.admit_workflow(tenant, loaded.workflow.metadata.name, named)
    return await registry.register(tenant, text, newest=newest)
