"""Pausing the whole deployment: whatever runs, of every tenant, and letting go on again what was paused by that.

Asked by who runs the deployment. What a tenant has paused itself stays paused. Each tenant finds in its own audit trail
that it was done and by whom; queued executions, and what is started later, begin as ever.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agentflow.contracts.audit import Actor, Resource
from agentflow.errors import Conflict, OverBudget
from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import PAUSED_AT_ONCE
from control_plane.audit.notes import noting
from control_plane.audit.trail import Trail
from control_plane.identity.principals import Principal
from control_plane.identity.tenants import Tenants
from control_plane.orchestrator.orchestrator import ExecutionNotFound
from control_plane.registry.executions import ExecutionFilter, ExecutionPages, ExecutionPlace

_BY_US = "platform/"  # begins the request by which the deployment pauses an execution

Wanted = Callable[[Stamp], messages.Request]


class Executions(Protocol):
    async def state(self, tenant: TenantId, execution: ExecutionId) -> ExecutionState: ...

    async def request(self, tenant: TenantId, execution: ExecutionId, wanted: Wanted) -> ExecutionState: ...


class Asked(msgspec.Struct, frozen=True):
    """How many executions of how many tenants were paused, or went on."""

    executions: int
    tenants: int


@dataclass(frozen=True, slots=True)
class Pausing:
    tenants: Tenants
    pages: ExecutionPages
    executions: Executions
    trail: Trail
    now_ms: Callable[[], int]

    async def pause(self, by: Principal, request: str, reason: str) -> Asked:
        """Every execution that runs now."""

        async def one(tenant: TenantId, execution: ExecutionId) -> bool:
            wanted = f"{_BY_US}{request}"
            state = await self.executions.request(
                tenant, execution, lambda stamp: messages.Pause(stamp, wanted, reason)
            )
            return state.paused_by == wanted

        return await self._everywhere(by, "platform.pause", Status.RUNNING, one)

    async def resume(self, by: Principal, request: str) -> Asked:
        """Every execution that the deployment has paused."""

        async def one(tenant: TenantId, execution: ExecutionId) -> bool:
            if not (await self.executions.state(tenant, execution)).paused_by.startswith(_BY_US):
                return False
            wanted = f"{_BY_US}{request}"
            await self.executions.request(tenant, execution, lambda stamp: messages.Resume(stamp, wanted))
            return True

        return await self._everywhere(by, "platform.resume", Status.PAUSED, one)

    async def _everywhere(self, by: Principal, action: str, status: Status, one: "_Ask") -> Asked:
        # Each in a task of its own, whose note is another one than that of the request that all of this is for.
        counts = [
            await asyncio.create_task(self._of(tenant.id, by, action, status, one))
            for tenant in await self.tenants.all()
        ]
        return Asked(sum(counts), sum(count > 0 for count in counts))

    async def _of(self, tenant: TenantId, by: Principal, action: str, status: Status, one: "_Ask") -> int:
        if tenant == by.tenant:
            return await self._each(tenant, status, one)
        note = self.trail.begin(
            tenant, Actor(by.kind, by.id), action, Resource("platform", ""), {"tenant_of_actor": by.tenant}
        )
        with noting(note):
            count = await self._each(tenant, status, one)
            if count:
                await self.trail.finish(note)
        return count

    async def _each(self, tenant: TenantId, status: Status, one: "_Ask") -> int:
        """By their places in the order of starts, which do not change when they are paused."""
        wanted = ExecutionFilter(statuses=(status,), started_before_ms=self.now_ms() + 1)
        after: ExecutionPlace | None = None
        count = 0
        while True:
            page = await self.pages.page(tenant, wanted, limit=PAUSED_AT_ONCE, after=after, newest_first=False)
            asked = (one(tenant, item.id) for item in page.items)
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, BaseException) and not isinstance(
                    answer, Conflict | ExecutionNotFound | OverBudget
                ):
                    raise answer
                count += answer is True
            if page.reached is None:
                return count
            after = page.reached


class _Ask(Protocol):
    async def __call__(self, tenant: TenantId, execution: ExecutionId) -> bool:
        """Whether it was done; refused where the execution has ended meanwhile."""
        ...
