"""What is left of every budget, as far as this control plane knows without asking: what the orchestrator asks.

Adds up what our own commits spend as they are decided, so that nothing more is begun than was under way; reads again
what all control planes have spent, about every second, and whenever one of them says that a budget is used up. What is
counted here is never written: after a restart it is read anew. While there are no budgets it looks every ten seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress

import structlog

from agentflow.clock import Clock
from agentflow.contracts.audit import Actor, AuditRecord, Resource, entry_of
from agentflow.contracts.usage import Usage, dollars_text
from agentflow.errors import Unavailable
from agentflow.ids import TenantId
from agentflow.limits import BUDGET_LOOK_S, BUDGET_LOOK_SHARE, BUDGETS_NONE_LOOK_S
from agentflow.ports import MessageBus
from control_plane.costs.book import CHANGED, BudgetStore
from control_plane.costs.budget import NOTHING_USED, STATES, Budget, BudgetUsedUp, Used, used_by

_log = structlog.get_logger(__name__)
_US = Actor("service", "control-plane")


class _Kept:
    """One budget, and what is spent of it: `read` from the store, and what is not certain to be in there."""

    __slots__ = ("budget", "deciding", "from_ms", "read", "read_until_s", "reading", "said", "since")

    def __init__(self, budget: Budget, from_ms: int) -> None:
        self.budget = budget
        self.from_ms = from_ms
        self.read = NOTHING_USED
        self.since = NOTHING_USED  # durable, and perhaps later than what was read
        self.reading = NOTHING_USED  # durable since the read under way began
        self.deciding = NOTHING_USED  # decided, and not known to be durable
        self.read_until_s = float("-inf")  # when it is read again
        self.said = False  # to the other control planes, that our commits have used it up

    @property
    def used(self) -> Used:
        return self.read + self.since + self.deciding

    @property
    def stops(self) -> bool:
        return self.budget.stops(self.used)


class Purse:
    def __init__(
        self,
        store: BudgetStore,
        *,
        bus: MessageBus,
        clock: Clock,
        new_id: Callable[[], str],
        on_record: Callable[[TenantId], None],
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self._on_record = on_record
        self._kept: dict[TenantId, dict[str, _Kept]] = {}
        self._short: dict[TenantId, list[_Kept]] = {}  # those that are used up and stop what they cover
        self._looking = asyncio.Lock()
        self._look_now = asyncio.Event()
        self._news = False
        self.looked: Callable[[], None] = lambda: None  # called after each look: something may go on

    @property
    def short(self) -> bool:
        """Whether any budget of anybody stops anything now."""
        return bool(self._short)

    def forbids(self, tenant: TenantId, workflows: Collection[str], agents: Collection[str]) -> BudgetUsedUp | None:
        """Why nothing may be begun that these workflows and agents would spend on."""
        for kept in self._short.get(tenant, ()):
            if kept.budget.covers(workflows, agents):
                return BudgetUsedUp(kept.budget, kept.used, self._clock.now_ms())
        return None

    def holds(self, tenant: TenantId, budget: str) -> bool:
        """Whether this one stops what it covers; one that is gone stops nothing."""
        return any(kept.budget.id == budget for kept in self._short.get(tenant, ()))

    def warnings(self, tenant: TenantId, workflow: str) -> list[str]:
        """What whoever starts an execution should know: budgets that are nearly used up, or are and only warn."""
        return [
            f"{kept.budget.id}; state={kept.budget.state(kept.used)}; used={kept.budget.share(kept.used):.3f}"
            for kept in self._kept.get(tenant, {}).values()
            if kept.budget.state(kept.used) != "ok" and kept.budget.covers((workflow,), ())
        ]

    def decided(self, tenant: TenantId, workflow: str, at_ms: int, usage: Sequence[Usage]) -> "Counted":
        """Something was used, and is being written down. What comes back says so to `settled`."""
        counted = []
        for kept in self._kept.get(tenant, {}).values():
            used = sum((used_by(one) for one in usage if kept.budget.counts(workflow, one)), start=NOTHING_USED)
            if used != NOTHING_USED and at_ms >= kept.from_ms:
                counted.append((kept, used))
                kept.deciding += used
                if kept.stops and not self.holds(tenant, kept.budget.id):
                    self._short.setdefault(tenant, []).append(kept)
        return counted

    def settled(self, counted: "Counted", *, durable: bool) -> None:
        """What was `decided` is written down, or may not be: the next look tells."""
        for kept, used in counted:
            kept.deciding -= used
            if durable:
                kept.since += used
                kept.reading += used
                if kept.stops and not kept.said:
                    kept.said = self._news = True
                    self._look_now.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For as long as the block lasts; everything is known before it begins."""
        await self.look()
        listening = await self._bus.listen(CHANGED, lambda _: self._look_now.set())
        looking = asyncio.create_task(self._run(), name="budgets")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await listening.stop()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BUDGET_LOOK_S if self._kept else BUDGETS_NONE_LOOK_S):
                    await self._look_now.wait()
            at_once = self._look_now.is_set()
            self._look_now.clear()
            try:
                if self._news:
                    await self._bus.broadcast(CHANGED, b"")  # the other control planes have not seen our commits
                    self._news = False
                await self.look(at_once=at_once)
            except Unavailable as error:
                _log.warning("budgets.not_read", reason=error.message)

    async def look(self, *, at_once: bool = False) -> None:
        """What there is now, and what is spent of it. One that takes long to add up is read less often."""
        async with self._looking:
            await self._look(at_once)
        self.looked()

    async def _look(self, at_once: bool) -> None:
        now_ms = self._clock.now_ms()
        self._kept = self._taken_over(await self._store.all(), now_ms)
        for kept in [one for some in self._kept.values() for one in some.values()]:
            if at_once or self._clock.monotonic_s() >= kept.read_until_s:
                await self._read(kept)
            await self._tell(kept)
        self._short = {
            tenant: short
            for tenant, some in self._kept.items()
            if (short := [kept for kept in some.values() if kept.stops])
        }

    def _taken_over(self, found: Sequence[Budget], now_ms: int) -> dict[TenantId, dict[str, _Kept]]:
        taken: dict[TenantId, dict[str, _Kept]] = {}
        for budget in found:
            kept = self._kept.get(budget.tenant, {}).get(budget.id)
            if kept is None or kept.from_ms != budget.began_ms(now_ms):
                kept = _Kept(budget, budget.began_ms(now_ms))
            kept.budget = budget
            taken.setdefault(budget.tenant, {})[budget.id] = kept
        return taken

    async def _read(self, kept: _Kept) -> None:
        began_s = self._clock.monotonic_s()
        kept.reading = NOTHING_USED
        kept.read = await self._store.used(kept.budget, from_ms=kept.from_ms)
        kept.since = kept.reading  # perhaps counted twice until the next look, never left out
        kept.said = kept.said and kept.stops
        took_s = self._clock.monotonic_s() - began_s
        kept.read_until_s = began_s + max(BUDGET_LOOK_S, took_s / BUDGET_LOOK_SHARE)

    async def _tell(self, kept: _Kept) -> None:
        """Whatever became of it is on record once in its period; nobody is told what is only about to be durable."""
        budget, state = kept.budget, kept.budget.state(kept.read)
        heard = budget.told if budget.told_of_ms == kept.from_ms else "ok"
        if STATES.index(state) <= STATES.index(heard):
            return
        record = AuditRecord(
            f"aud_{self._new_id()}",
            budget.tenant,
            self._clock.now_ms(),
            _US,
            f"budgets.{state}",
            Resource("budget", budget.id),
            "done",
            {
                "of": budget.label,
                "on_exceed": budget.on_exceed,
                "dollars": dollars_text(kept.read.microdollars),
                "tokens": kept.read.tokens,
                "cost_unknown": kept.read.unknown,
            },
        )
        if await self._store.tell(budget, state, kept.from_ms, entry_of(record)):
            self._on_record(budget.tenant)


Counted = list[tuple[_Kept, Used]]
