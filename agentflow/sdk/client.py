"""Speaks the REST contract, asynchronously: one method for each thing the API can do, a file for each noun.

The CLI and user programs call it (`blocking` is for programs without an event loop). What only reads, or carries a key,
is sent again where the control plane does not answer; `execute` without a key and `push_workflow` are sent once.
"""

from types import TracebackType
from typing import Self

from agentflow.clock import Clock, SystemClock
from agentflow.errors import Unavailable
from agentflow.sdk.agents import AgentRequests
from agentflow.sdk.audit import AuditOperations
from agentflow.sdk.budgets import BudgetOperations
from agentflow.sdk.events import EventRequests
from agentflow.sdk.identity import IdentityOperations
from agentflow.sdk.models import CostReport, DeploymentStatus, Estimate
from agentflow.sdk.orders import OrderRequests
from agentflow.sdk.records import RecordOperations
from agentflow.sdk.requests import given, segment
from agentflow.sdk.schedules import ScheduleRequests
from agentflow.sdk.snapshots import SnapshotOperations
from agentflow.sdk.tools import ToolRequests
from agentflow.sdk.transport import Transport
from agentflow.sdk.workflows import WorkflowRequests
from agentflow.tls import TlsFiles, client_context


class Client(WorkflowRequests, OrderRequests, EventRequests, ScheduleRequests, ToolRequests, AgentRequests):
    """`async with Client("http://127.0.0.1:8080", api_key="afk_…") as af: await af.execute("support", {…})`

    `token` is sent where both are given. `tls`: an authority of your own, and a certificate to show.
    """

    def __init__(
        self,
        api_url: str,
        *,
        token: str | None = None,
        api_key: str | None = None,
        retries: int = 2,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        api_url = api_url.rstrip("/")
        bearer = token or api_key
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        transport = Transport(api_url, headers, None if tls is None else client_context(tls))
        super().__init__(api_url, transport, clock or SystemClock(), retries)

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    @property
    def identity(self) -> IdentityOperations:
        """Logging in, people, roles, keys and tenants."""
        return IdentityOperations(self._ask)

    @property
    def audit(self) -> AuditOperations:
        """Who did what."""
        return AuditOperations(self._ask)

    @property
    def budgets(self) -> BudgetOperations:
        """How much may be spent on what."""
        return BudgetOperations(self._ask)

    @property
    def records(self) -> RecordOperations:
        """What is asked about executions that are on record: replays."""
        return RecordOperations(self._ask)

    @property
    def snapshots(self) -> SnapshotOperations:
        """Immutable records of executions."""
        return SnapshotOperations(self._ask, self._transport.chunks)

    async def status(self) -> DeploymentStatus:
        """What kind of deployment this is."""
        return await self._get("/status", DeploymentStatus)

    async def ready(self) -> bool:
        """Whether a control plane is there and takes work."""
        try:
            await self._send("GET", f"{self.api_url}/readyz", within_s=5)
        except Unavailable:
            return False
        return True

    async def costs(self, *, scope: str = "tenant", period: str = "today") -> CostReport:
        """What was spent, by `tenant`, `workflow`, `agent` or `resource`; the dearest first."""
        return await self._get("/costs", CostReport, given(scope=scope, period=period))

    async def estimate(self, plan: str) -> Estimate:
        """What the next execution will probably cost: of a workflow (id, name, name@version), or of a plan's hash."""
        return await self._get(f"/plans/{segment(plan)}/estimate", Estimate)
