"""The budgets of a tenant: made, listed, changed, removed; and what is spent of each, exactly, when somebody looks.

What is changed holds here once it is answered. The other control planes are told on the bus; a lost word costs a
second.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.contracts.audit import AuditEntry
from agentflow.errors import Conflict, Unavailable
from agentflow.ids import TenantId
from agentflow.limits import BUDGETS_MAX
from agentflow.ports import MessageBus
from control_plane.audit.notes import concerning
from control_plane.costs.budget import (
    Budget,
    BudgetNotFound,
    BudgetState,
    BudgetThere,
    InvalidBudget,
    TooManyBudgets,
    Used,
    problems,
)

CHANGED = "control.budgets"  # broadcast: a budget was made, changed, removed or found to be used up


class BudgetStore(Protocol):
    async def add(self, budget: Budget) -> Budget:
        """Keep it, unless its id or its scope and period are taken; answers with what stands there now."""
        ...

    async def get(self, tenant: TenantId, id: str) -> Budget | None: ...

    async def list(self, tenant: TenantId) -> Sequence[Budget]:
        """The oldest first."""
        ...

    async def replace(self, budget: Budget) -> bool:
        """Put it in the place of the revision before it. False when somebody else was there first."""
        ...

    async def remove(self, tenant: TenantId, id: str) -> None: ...

    async def all(self) -> Sequence[Budget]:
        """Of all tenants."""
        ...

    async def used(self, budget: Budget, *, from_ms: int) -> Used:
        """What was spent of it since then, added up from the observations."""
        ...

    async def tell(self, budget: Budget, state: BudgetState, of_ms: int, entry: AuditEntry) -> bool:
        """Put on record what became of it, once in each period, whoever notices it. False where it is there already."""
        ...


class Standing(msgspec.Struct, frozen=True):
    """A budget and how it stands."""

    budget: Budget
    used: Used
    now_ms: int

    @property
    def state(self) -> BudgetState:
        return self.budget.state(self.used)


class BudgetChanged(Conflict):
    code = "AF1810"

    def __init__(self, budget: str) -> None:
        super().__init__(
            f"The budget {budget} was changed by somebody else. Nothing of yours was kept.",
            hint="Read it again, look at what changed, and send the request with the new ETag.",
        )


class BudgetBook:
    def __init__(
        self, store: BudgetStore, *, bus: MessageBus, clock: Clock, apply: Callable[[], Awaitable[None]]
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._apply = apply

    async def create(self, wanted: Budget) -> Standing:
        """Under its id once, however often it is sent; refused where its scope has one for that period already."""
        if wrong := problems(wanted):
            raise InvalidBudget(wrong)
        concerning("budget", wanted.id, scope=wanted.scope, name=wanted.name, period=wanted.period)
        there = await self._store.list(wanted.tenant)
        if len(there) >= BUDGETS_MAX and all(one.id != wanted.id for one in there):
            raise TooManyBudgets(BUDGETS_MAX)
        stored = await self._store.add(wanted)
        if stored.id != wanted.id:
            raise BudgetThere(stored)
        await self._say()
        return await self._standing(stored)

    async def find(self, tenant: TenantId, id: str) -> Standing:
        found = await self._store.get(tenant, id)
        if found is None:
            raise BudgetNotFound(id)
        return await self._standing(found)

    async def list(self, tenant: TenantId) -> list[Standing]:
        """The oldest first."""
        return [await self._standing(budget) for budget in await self._store.list(tenant)]

    async def change(
        self, tenant: TenantId, id: str, change: Callable[[Budget], Budget], *, only_at: int | None = None
    ) -> Standing:
        """With `only_at`, only while that is its revision: `BudgetChanged` otherwise.

        What a new limit means is told anew, also within the period.
        """
        before = (await self.find(tenant, id)).budget
        after = change(before)
        if wrong := problems(after):
            raise InvalidBudget(wrong)
        after = msgspec.structs.replace(after, revision=before.revision + 1, told="ok", told_of_ms=0)
        if only_at not in (None, before.revision) or not await self._store.replace(after):
            raise BudgetChanged(id)
        await self._say()
        return await self._standing(after)

    async def remove(self, tenant: TenantId, id: str) -> None:
        await self.find(tenant, id)
        await self._store.remove(tenant, id)
        await self._say()

    async def _standing(self, budget: Budget) -> Standing:
        now_ms = self._clock.now_ms()
        return Standing(budget, await self._store.used(budget, from_ms=budget.began_ms(now_ms)), now_ms)

    async def _say(self) -> None:
        await self._apply()
        with suppress(Unavailable):
            await self._bus.broadcast(CHANGED, b"")
