"""Tenants: made and changed by the one that runs the deployment, each with quotas that are held when work comes in.

A quota that is not set is no limit. What is used is asked of the database now and then and counted on between, so a
limit costs a start nothing; with several control planes it may be passed by what they start within that moment.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from agentflow.clock import Clock, parse_rfc3339, rfc3339
from agentflow.errors import Conflict, Forbidden, Limited, NotFound
from agentflow.ids import TenantId, UlidSource
from agentflow.limits import QUOTA_REREAD_S, QUOTA_USE_REREAD_S, STORAGE_USE_REREAD_S
from control_plane.audit.notes import concerning
from control_plane.identity import api_keys
from control_plane.identity.api_keys import NewKey
from control_plane.identity.people import ApiKey, Person
from control_plane.identity.permissions import Permission, built_in_role
from control_plane.identity.principals import Principal

_DAY_MS = 24 * 3600 * 1000


class Quotas(msgspec.Struct, frozen=True, omit_defaults=True):
    agents: int | None = None  # different ones: of its own workers, and those its workflows name
    workflows: int | None = None  # by name; versions are free
    executions_per_day: int | None = None  # begun since midnight UTC
    executions_at_once: int | None = None  # more are queued
    dollars_per_month: float | None = None  # spent since the first of the month
    storage_bytes: int | None = None


NO_QUOTAS = Quotas()


class Tenant(msgspec.Struct, frozen=True):
    id: TenantId
    name: str
    tier: str
    quotas: Quotas
    created_at_ms: int


class Use(msgspec.Struct, frozen=True):
    agents: int
    workflows: int
    executions_today: int
    executions_open: int
    dollars_this_month: float
    storage_bytes: int


class TenantNotFound(NotFound):
    code = "AF1721"

    def __init__(self, tenant: str) -> None:
        super().__init__(f"There is no tenant {tenant!r} that you may see.", hint="af tenants list")


class TenantThere(Conflict):
    code = "AF1722"

    def __init__(self, tenant: str) -> None:
        super().__init__(f"The tenant {tenant!r} is there already.", hint="Choose another id.")


class QuotaReached(Forbidden):
    """Something has to go, or the quota has to grow, before this can be done: waiting changes nothing."""

    code = "AF1723"

    def __init__(self, what: str, limit: float) -> None:
        super().__init__(
            f"Your tenant may have {limit:g} {what}, and has them.",
            hint="`af tenants show` shows quotas and use; whoever runs the deployment can raise them.",
        )


class QuotaUsedUp(Limited):
    """Until its period is over, or until what is stored is purged."""

    code = "AF1724"

    def __init__(self, what: str, limit: float, retry_after_s: float) -> None:
        super().__init__(
            f"Your tenant has used up its quota of {limit:g} {what}.",
            hint="`af tenants show` shows quotas and use; whoever runs the deployment can raise them.",
            retry_after_s=retry_after_s,
        )


class TenantStore(Protocol):
    async def all(self) -> Sequence[Tenant]: ...

    async def get(self, tenant: TenantId) -> Tenant | None: ...

    async def add(self, tenant: Tenant, admin: Person, key: ApiKey, hashed_secret: str) -> bool:
        """With its built-in roles and its first admin, in one transaction. False where the id is taken."""
        ...

    async def has_user(self, tenant: TenantId, user: str) -> bool: ...

    async def change(self, tenant: Tenant) -> None: ...

    async def executions_since(self, tenant: TenantId, at_ms: int) -> int: ...

    async def executions_open(self, tenant: TenantId) -> int: ...

    async def microdollars_since(self, tenant: TenantId, at_ms: int) -> int: ...

    async def storage_bytes(self, tenant: TenantId) -> int: ...

    async def workflow_names(self, tenant: TenantId) -> Sequence[str]: ...

    async def agents_named(self, tenant: TenantId) -> frozenset[str]: ...


class _Counted(msgspec.Struct):
    count: float
    read_at_s: float
    period: int


class Tenants:
    def __init__(
        self,
        *,
        store: TenantStore,
        clock: Clock,
        ids: UlidSource,
        changed: Callable[[], Awaitable[None]],
        hosted: Callable[[TenantId], frozenset[str]],
    ) -> None:
        self._hosted = hosted
        self._store = store
        self._clock = clock
        self._ids = ids
        self._changed = changed
        self._known: dict[TenantId, tuple[float, Quotas]] = {}
        self._used: dict[tuple[TenantId, str], _Counted] = {}

    async def all(self) -> Sequence[Tenant]:
        return await self._store.all()

    async def show(self, actor: Principal, tenant: str) -> Tenant:
        """One's own, or any for who manages them; others are not there."""
        found = await self._store.get(TenantId(tenant)) if self._visible(actor, tenant) else None
        if found is None:
            raise TenantNotFound(tenant)
        return found

    async def use(self, actor: Principal, tenant: str) -> Use:
        there = (await self.show(actor, tenant)).id
        now_ms = self._clock.now_ms()
        return Use(
            agents=len(await self._agents(there)),
            workflows=len(await self._store.workflow_names(there)),
            executions_today=await self._store.executions_since(there, _midnight_ms(now_ms)),
            executions_open=await self._store.executions_open(there),
            dollars_this_month=await self._store.microdollars_since(there, _month_began_ms(now_ms)) / 1e6,
            storage_bytes=await self._store.storage_bytes(there),
        )

    def new_admin_id(self) -> str:
        return f"svc_{self._ids.ulid()}"

    async def create(
        self, *, id: str, admin_id: str, name: str, tier: str, quotas: Quotas
    ) -> tuple[Tenant, str, NewKey | None]:
        """The tenant, and a service account with a key to begin with: its admin.

        Without the key where the tenant was made before, with that very admin: it is told once.
        """
        now_ms, made = self._clock.now_ms(), api_keys.new_key()
        tenant = Tenant(TenantId(id), name, tier, quotas, now_ms)
        admin = Person(
            tenant=tenant.id,
            id=admin_id,
            kind="service",
            name="first admin",
            email=None,
            created_at_ms=now_ms,
            roles=(built_in_role("admin"),),
        )
        key = ApiKey(id=made.id, tenant=tenant.id, user=admin.id, name="made with the tenant", created_at_ms=now_ms)
        concerning("tenant", tenant.id)
        if await self._store.add(tenant, admin, key, made.hashed_secret):
            return tenant, admin_id, made
        before = await self._store.get(tenant.id)
        if before is None or not await self._store.has_user(tenant.id, admin_id):
            raise TenantThere(id)
        return before, admin_id, None

    async def change(
        self, actor: Principal, tenant: str, *, name: str | None, tier: str | None, quotas: Quotas | None
    ) -> Tenant:
        before = await self.show(actor, tenant)
        after = Tenant(
            before.id, name or before.name, tier or before.tier, quotas or before.quotas, before.created_at_ms
        )
        await self._store.change(after)
        self.forget()
        await self._changed()
        return after

    def forget(self) -> None:
        self._known.clear()
        self._used.clear()

    def at_once(self, tenant: TenantId) -> int | None:
        """How many executions may be under way, as far as is known without asking."""
        known = self._known.get(tenant)
        return None if known is None else known[1].executions_at_once

    async def admit_execution(self, tenant: TenantId) -> None:
        """Before one is started. Raises `QuotaUsedUp`."""
        quotas = await self._quotas(tenant)
        if quotas == NO_QUOTAS:
            return
        now_ms = self._clock.now_ms()
        await self.admit_storage(tenant)
        if quotas.dollars_per_month is not None:
            month = _month_began_ms(now_ms)
            spent = await self._use(
                tenant, "dollars", month, QUOTA_USE_REREAD_S, lambda: self._store.microdollars_since(tenant, month)
            )
            if spent.count >= quotas.dollars_per_month * 1e6:
                raise QuotaUsedUp("dollars this month", quotas.dollars_per_month, _DAY_MS / 1000)
        if quotas.executions_per_day is not None:
            midnight = _midnight_ms(now_ms)
            begun = await self._use(
                tenant,
                "executions",
                midnight,
                QUOTA_USE_REREAD_S,
                lambda: self._store.executions_since(tenant, midnight),
            )
            if begun.count >= quotas.executions_per_day:
                left_s = (midnight + _DAY_MS - now_ms) / 1000
                raise QuotaUsedUp("executions today", quotas.executions_per_day, left_s)
            begun.count += 1

    async def admit_storage(self, tenant: TenantId) -> None:
        """Before something is kept that was not there. Raises `QuotaUsedUp`."""
        most = (await self._quotas(tenant)).storage_bytes
        if most is None:
            return
        used = await self._use(tenant, "bytes", 0, STORAGE_USE_REREAD_S, lambda: self._store.storage_bytes(tenant))
        if used.count >= most:
            raise QuotaUsedUp("bytes of storage", most, STORAGE_USE_REREAD_S)

    async def admit_workflow(self, tenant: TenantId, name: str, agents: frozenset[str]) -> None:
        """Before one is registered. Raises `QuotaReached`."""
        quotas = await self._quotas(tenant)
        if quotas.workflows is not None:
            names = await self._store.workflow_names(tenant)
            if name not in names and len(names) >= quotas.workflows:
                raise QuotaReached("workflows", quotas.workflows)
        if quotas.agents is not None:
            there = await self._agents(tenant)
            if not agents <= there and len(agents | there) > quotas.agents:
                raise QuotaReached("agents", quotas.agents)

    async def _agents(self, tenant: TenantId) -> frozenset[str]:
        """Those its workflows name, and those its own workers host."""
        return await self._store.agents_named(tenant) | self._hosted(tenant)

    async def _quotas(self, tenant: TenantId) -> Quotas:
        known = self._known.get(tenant)
        if known is not None and self._clock.monotonic_s() < known[0]:
            return known[1]
        found = await self._store.get(tenant)
        quotas = NO_QUOTAS if found is None else found.quotas
        self._known[tenant] = (self._clock.monotonic_s() + QUOTA_REREAD_S, quotas)
        return quotas

    async def _use(
        self, tenant: TenantId, what: str, period: int, reread_s: float, ask: Callable[[], Awaitable[Any]]
    ) -> _Counted:
        used = self._used.get((tenant, what))
        now_s = self._clock.monotonic_s()
        if used is None or used.period != period:
            used = self._used[tenant, what] = _Counted(await ask(), now_s, period)
        elif now_s - used.read_at_s >= reread_s:
            used.read_at_s = now_s
            there = await ask()
            # Of executions that are just being started the database does not know yet.
            used.count = max(there, used.count) if what == "executions" else there
        return used

    @staticmethod
    def _visible(actor: Principal, tenant: str) -> bool:
        return tenant == actor.tenant or actor.authority.may(Permission.TENANTS_MANAGE)


def _midnight_ms(now_ms: int) -> int:
    return now_ms - now_ms % _DAY_MS


def _month_began_ms(now_ms: int) -> int:
    return parse_rfc3339(f"{rfc3339(now_ms)[:7]}-01T00:00:00Z")
