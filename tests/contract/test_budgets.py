"""What every store of budgets promises, and what is known of them between two looks, on both engines."""

import asyncio
from collections.abc import AsyncIterator
from functools import reduce

import msgspec
import pytest

from agentflow.clock import SystemClock, parse_rfc3339
from agentflow.contracts.usage import Usage
from agentflow.execution.events import ExecutionStarted, StepScheduled, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId
from agentflow.ports import NewEvents, Observation, StorageUnavailable
from agentflow.testing import eventually
from control_plane.costs.book import BudgetBook, BudgetChanged
from control_plane.costs.budget import Budget, BudgetNotFound, BudgetThere, TooManyBudgets, Used
from control_plane.costs.purse import Purse
from control_plane.storage import budgets as store_module
from control_plane.storage.budgets import SqlBudgets
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.tables import audit_pending

ACME, OTHER = TenantId("acme"), TenantId("other")
NOW = parse_rfc3339("2026-11-18T21:15:00Z")
TENTH = Usage("model x", 100_000, "writer", input=90, output=10)
LOCAL = Usage("model local", None, "writer", input=7)


class Wall:
    def __init__(self) -> None:
        self.ms = NOW

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)


class Bus:
    """Everybody hears what anybody says."""

    def __init__(self) -> None:
        self.listeners = []

    async def broadcast(self, subject: str, payload: bytes) -> None:
        for listener in self.listeners:
            listener(payload)

    async def listen(self, subject, handler):
        self.listeners.append(handler)
        return self

    async def stop(self) -> None: ...


class Desk:
    def __init__(self, db: Database) -> None:
        self.db = db
        self.store = SqlBudgets(db)
        self.wall = Wall()
        self.bus = Bus()
        self.told: list[str] = []
        self._number = 0
        self.purse = self.another()
        self.book = BudgetBook(self.store, bus=self.bus, clock=self.wall, apply=self.purse.look)

    def another(self) -> Purse:
        """What another control plane knows."""
        return Purse(
            self.store, bus=self.bus, clock=self.wall, new_id=self._id, on_record=self.told.append
        )  # fmt: skip

    def _id(self) -> str:
        self._number += 1
        return f"{self._number:026d}"

    async def made(self, **given) -> Budget:
        usual = {
            "tenant": ACME, "id": f"bud_{self._id()}", "scope": "tenant", "name": "", "period": "day",
            "microdollars": 300_000, "tokens": None, "on_exceed": "stop", "warn_at_percent": 80,
            "created_at_ms": self.wall.ms,
        }  # fmt: skip
        return (await self.book.create(Budget(**{**usual, **given}))).budget

    async def spend(self, *usage: Usage, workflow="support", tenant=ACME, at_ms: int | None = None) -> None:
        """As a commit does it: an execution whose step reported this."""
        execution, at_ms = ExecutionId(f"exec_{self._id()}"), at_ms or self.wall.ms
        ref = WorkflowRef(WorkflowId("wf_1"), workflow, "1.0.0", "d")
        events = (
            ExecutionStarted(1, execution, tenant, ref, {}, TraceId("t")),
            StepScheduled(2, StepPath("a"), "a", 1, AgentName("a"), {}, 1_000),
        )
        state = reduce(evolve, events, ExecutionState())
        costs = (Observation(StepPath("a"), 1, at_ms, usage),)
        await SqlEventStore(self.db).append([NewEvents(execution, tenant, 0, 0, events, state, costs=costs)], {0: 1})

    def forbidden(self, purse: Purse | None = None, *, workflow="support", agent="writer", tenant=ACME) -> bool:
        return (purse or self.purse).forbids(tenant, (workflow,), (agent,)) is not None


@pytest.fixture
async def desk(database_dsn: str) -> AsyncIterator[Desk]:
    async with database(database_dsn) as db:
        await upgrade(db)
        await SqlShardLeases(db).acquire([0], "us", lease_s=600)
        yield Desk(db)


async def test_what_is_spent_is_the_sum_of_the_observations_of_its_scope_and_period(desk: Desk) -> None:
    yesterday = NOW - 24 * 3600 * 1000
    await desk.spend(TENTH, LOCAL)
    await desk.spend(TENTH, workflow="report")
    await desk.spend(TENTH, at_ms=yesterday)
    await desk.spend(TENTH, tenant=OTHER)

    assert (await desk.book.find(ACME, (await desk.made()).id)).used == Used(200_000, 207, 1)
    assert (await desk.book.find(ACME, (await desk.made(period="month")).id)).used == Used(300_000, 307, 1)
    of_workflow = await desk.made(scope="workflow", name="report")
    assert (await desk.book.find(ACME, of_workflow.id)).used == Used(100_000, 100, 0)
    of_agent = await desk.made(scope="agent", name="nobody")
    assert (await desk.book.find(ACME, of_agent.id)).used == Used()
    assert (await desk.book.find(ACME, (await desk.made(period="total")).id)).used == Used(200_000, 207, 1)


async def test_a_budget_is_kept_once_for_its_scope_and_period_and_once_for_its_id(desk: Desk) -> None:
    made = await desk.made()

    assert (await desk.book.create(made)).budget == made, "the same request again"
    with pytest.raises(BudgetThere, match=made.id):
        await desk.made()
    await desk.made(tenant=OTHER)
    assert [one.budget.id for one in await desk.book.list(ACME)] == [made.id]
    with pytest.raises(BudgetNotFound):
        await desk.book.find(OTHER, made.id)
    with pytest.raises(BudgetNotFound):
        await desk.book.remove(OTHER, made.id)
    with pytest.raises(BudgetNotFound):
        await desk.book.change(OTHER, made.id, lambda before: before)
    await desk.book.remove(ACME, made.id)
    assert await desk.book.list(ACME) == []


async def test_of_two_changes_to_what_was_seen_one_is_kept(desk: Desk) -> None:
    made = await desk.made()

    def more(before: Budget) -> Budget:
        return msgspec.structs.replace(before, microdollars=9_000_000)

    changed = await desk.book.change(ACME, made.id, more, only_at=made.revision)
    assert changed.budget.microdollars == 9_000_000
    with pytest.raises(BudgetChanged):
        await desk.book.change(ACME, made.id, more, only_at=made.revision)


async def test_no_more_budgets_are_made_than_can_be_looked_after(desk: Desk, monkeypatch) -> None:
    monkeypatch.setattr("control_plane.costs.book.BUDGETS_MAX", 1)
    made = await desk.made()

    with pytest.raises(TooManyBudgets):
        await desk.made(period="month")
    assert (await desk.book.create(made)).budget == made, "what is there may be sent again"


async def test_what_we_commit_stops_the_next_step_at_once_and_without_asking(desk: Desk, monkeypatch) -> None:
    await desk.made(microdollars=200_000)

    async def asked(*_: object, **__: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(store_module.SqlBudgets, "used", asked)
    first = desk.purse.decided(ACME, "support", NOW, [TENTH])
    assert not desk.forbidden()
    desk.purse.settled(first, durable=True)
    second = desk.purse.decided(ACME, "support", NOW, [TENTH])
    assert desk.forbidden(), "before it is even durable"
    assert not desk.forbidden(tenant=OTHER)
    desk.purse.settled(second, durable=True)
    assert desk.forbidden()


async def test_a_commit_that_failed_has_spent_nothing_by_the_next_look(desk: Desk) -> None:
    await desk.made(microdollars=100_000)
    desk.purse.settled(desk.purse.decided(ACME, "support", NOW, [TENTH]), durable=False)

    await desk.purse.look(at_once=True)

    assert not desk.forbidden()


async def test_what_is_read_is_never_left_out_and_is_right_by_the_look_after(desk: Desk) -> None:
    made = await desk.made(microdollars=500_000)
    counted = desk.purse.decided(ACME, "support", NOW, [TENTH])
    reading = asyncio.Event()
    written = asyncio.Event()
    used = desk.store.used

    async def slowly(budget: Budget, *, from_ms: int) -> Used:
        before = await used(budget, from_ms=from_ms)
        reading.set()
        await written.wait()
        return before

    desk.store.used = slowly  # type: ignore[method-assign]
    looking = asyncio.create_task(desk.purse.look(at_once=True))
    await reading.wait()
    await desk.spend(TENTH)
    desk.purse.settled(counted, durable=True)  # while it is being read, and before it is looked at
    written.set()
    await looking
    desk.store.used = used  # type: ignore[method-assign]

    assert desk.purse._kept[ACME][made.id].used.microdollars >= 100_000
    await desk.purse.look(at_once=True)
    assert desk.purse._kept[ACME][made.id].used.microdollars == 100_000


async def test_another_control_plane_knows_within_a_look_and_after_its_start(desk: Desk) -> None:
    await desk.made(microdollars=200_000)
    other = desk.another()
    async with other.running():
        await desk.spend(TENTH, TENTH)
        counted = desk.purse.decided(ACME, "support", NOW, [TENTH, TENTH])
        async with desk.purse.running():
            desk.purse.settled(counted, durable=True)
            await eventually(lambda: desk.forbidden(other))

    late = desk.another()
    async with late.running():
        assert desk.forbidden(late), "known before anything is decided"


async def test_a_new_period_a_higher_limit_and_a_deletion_each_lift_it(desk: Desk) -> None:
    made = await desk.made(microdollars=100_000)
    await desk.spend(TENTH)
    await desk.purse.look(at_once=True)
    assert desk.forbidden()

    await desk.book.change(ACME, made.id, lambda one: msgspec.structs.replace(one, microdollars=150_000))
    assert not desk.forbidden(), "as soon as it is answered"
    await desk.book.change(ACME, made.id, lambda one: msgspec.structs.replace(one, microdollars=100_000))
    assert desk.forbidden()
    desk.wall.ms += 3 * 3600 * 1000
    await desk.purse.look()
    assert not desk.forbidden(), "it is tomorrow"
    await desk.spend(TENTH)
    desk.wall.ms += 2_000
    await desk.purse.look()
    assert desk.forbidden()
    await desk.book.remove(ACME, made.id)
    assert not desk.forbidden()


async def test_each_state_is_put_on_record_once_in_a_period_whoever_notices_it(desk: Desk) -> None:
    made = await desk.made(on_exceed="warn", microdollars=200_000, warn_at_percent=50)
    others = [desk.another() for _ in range(3)]

    async def noticed() -> list[str]:
        await asyncio.gather(*(one.look(at_once=True) for one in (desk.purse, *others)))
        async with desk.db.system_read() as connection:
            records = (await connection.execute(audit_pending.select().order_by(audit_pending.c.id))).all()
        return sorted(
            record["action"]
            for row in records
            if (record := msgspec.json.decode(row.record))["resource"]["id"] == made.id
        )

    assert await noticed() == []
    await desk.spend(TENTH)
    assert await noticed() == ["budgets.warned"]
    assert await noticed() == ["budgets.warned"]
    await desk.spend(TENTH)
    assert await noticed() == ["budgets.exhausted", "budgets.warned"]
    assert not desk.forbidden(), "it only warns"
    (warning,) = desk.purse.warnings(ACME, "support")
    assert warning == f"{made.id}; state=exhausted; used=1.000"
    desk.wall.ms += 24 * 3600 * 1000
    await desk.spend(TENTH)
    assert await noticed() == ["budgets.exhausted", "budgets.warned", "budgets.warned"]
    assert set(desk.told) == {ACME}


async def test_while_the_database_is_away_what_was_known_holds(desk: Desk) -> None:
    await desk.made(microdollars=100_000)
    await desk.spend(TENTH)
    await desk.purse.look(at_once=True)

    async def away() -> None:
        raise StorageUnavailable("gone")

    desk.store.all = away  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        await desk.purse.look()
    assert desk.forbidden()
