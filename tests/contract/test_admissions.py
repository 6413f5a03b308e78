"""Who may begin while only so many may be under way: never more, never out of order, never forgotten."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from agentflow.clock import SystemClock
from agentflow.execution.events import ExecutionBegun, ExecutionCompleted, ExecutionStarted, Queued, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, UlidSource, WorkflowId
from agentflow.ports import NewEvents
from control_plane.orchestrator.admission import Entrant
from control_plane.storage.admissions import SqlRoom
from control_plane.storage.database import Database, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

ACME = TenantId("acme")


class House:
    """Executions in a real store, and the room for them."""

    def __init__(self, db: Database, epochs: dict[int, int]) -> None:
        self.room = SqlRoom(db, SystemClock())
        self._store = SqlEventStore(db)
        self._epochs = epochs
        self._ids = UlidSource(SystemClock().now_ms)
        self._states: dict[ExecutionId, ExecutionState] = {}
        self._turn = asyncio.Lock()  # one owner a shard: its events come one after the other

    async def queue(self, workflow: str = "w", *, most: int | None = 2, of_tenant=False, priority=0, tenant=ACME):
        execution = self._ids.execution()
        ref = WorkflowRef(WorkflowId(f"wf_{workflow}"), workflow, "1.0.0", "d")
        queue = Queued(workflow_max=most, of_tenant=of_tenant)
        await self._add(execution, tenant, ExecutionStarted(1, execution, tenant, ref, {}, TraceId("t"), queue=queue))
        return Entrant(execution, tenant, workflow, priority, len(self._states), most, of_tenant)

    async def begin(self, *executions: ExecutionId) -> None:
        for execution in executions:
            await self._add(execution, self._states[execution].tenant, ExecutionBegun(2))

    async def end(self, *executions: ExecutionId) -> None:
        for execution in executions:
            await self._add(execution, self._states[execution].tenant, ExecutionCompleted(3, None))

    async def _add(self, execution, tenant, event) -> None:
        async with self._turn:
            before = self._states.get(execution, ExecutionState())
            self._states[execution] = after = evolve(before, event)
            await self._store.append([NewEvents(execution, tenant, 0, before.version, (event,), after)], self._epochs)


@pytest.fixture
async def house(database_dsn: str) -> AsyncIterator[House]:
    async with database(database_dsn) as db:
        await upgrade(db)
        yield House(db, await SqlShardLeases(db).acquire([0], "me", lease_s=600))


async def test_as_many_begin_as_may_and_the_next_ones_when_those_end(house: House) -> None:
    waiting = [await house.queue() for _ in range(5)]
    names = [one.execution for one in waiting]

    assert await house.room.admit(ACME, waiting, tenant_max=None) == names[:2]
    await house.begin(*names[:2])
    assert await house.room.admit(ACME, [], tenant_max=None) == []
    await house.end(names[1])
    assert await house.room.admit(ACME, [], tenant_max=None) == [names[2]]


async def test_who_was_admitted_and_never_told_is_named_again(house: House) -> None:
    waiting = [await house.queue() for _ in range(3)]
    admitted = await house.room.admit(ACME, waiting, tenant_max=None)

    assert await house.room.admit(ACME, waiting, tenant_max=None) == admitted  # entering twice changes nothing
    await house.begin(*admitted)
    assert await house.room.admit(ACME, [], tenant_max=None) == []


async def test_the_higher_priority_goes_first_and_among_equals_who_came_first(house: House) -> None:
    low, first, second, high = [await house.queue(most=1, priority=priority) for priority in (-5, 0, 0, 9)]
    order = []
    entering = [low, first, second, high]
    for _ in range(4):
        (next_one,) = await house.room.admit(ACME, entering, tenant_max=None)
        entering = []
        order.append(next_one)
        await house.begin(next_one)
        await house.end(next_one)

    assert order == [one.execution for one in (high, first, second, low)]


async def test_a_full_workflow_does_not_hold_up_another_and_the_tenants_limit_counts_both(house: House) -> None:
    entering = [await house.queue("a", most=1, of_tenant=True) for _ in range(3)]
    entering += [await house.queue("b", most=None, of_tenant=True) for _ in range(3)]

    admitted = await house.room.admit(ACME, entering, tenant_max=3)

    assert admitted == [entering[0].execution, entering[3].execution, entering[4].execution]


async def test_who_ended_in_the_queue_takes_nobodys_place(house: House) -> None:
    waiting = [await house.queue(most=1) for _ in range(3)]
    await house.room.admit(ACME, waiting, tenant_max=None)
    await house.end(waiting[0].execution, waiting[1].execution)  # one had room, one had not; nobody was told

    assert await house.room.admit(ACME, [], tenant_max=None) == [waiting[2].execution]


async def test_tenants_do_not_count_against_each_other(house: House) -> None:
    mine = await house.queue(most=1)
    yours = await house.queue(most=1, tenant=TenantId("other"))

    assert await house.room.admit(ACME, [mine], tenant_max=1) == [mine.execution]
    assert await house.room.admit(TenantId("other"), [yours], tenant_max=1) == [yours.execution]


async def test_replicas_that_ask_at_once_never_give_away_the_same_place(house: House) -> None:
    waiting = [await house.queue(most=3) for _ in range(24)]
    running: set[ExecutionId] = set()
    most = Counter[str]()
    ended = 0

    async def replica(part: list[Entrant], chance: random.Random) -> None:
        nonlocal ended
        entering = part
        while ended < len(waiting):
            admitted = await house.room.admit(ACME, entering, tenant_max=None)
            entering = []
            for execution in admitted:
                if execution not in running and house._states[execution].status == "queued":
                    running.add(execution)
                    most["at once"] = max(most["at once"], len(running))
                    await house.begin(execution)
            for execution in sorted(running)[: chance.randint(0, 2)]:
                if execution in running and house._states[execution].status == "running":
                    running.discard(execution)
                    ended += 1
                    await house.end(execution)
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as replicas:
        for number in range(3):
            replicas.create_task(replica(waiting[number::3], random.Random(number)))

    assert most["at once"] <= 3
    assert ended == len(waiting)
