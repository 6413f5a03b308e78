"""What every store of schedules promises, and that a schedule fires once whoever watches it and whenever they die."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from agentflow.clock import SystemClock
from agentflow.errors import NotFound
from agentflow.ids import TenantId
from agentflow.ports import StorageUnavailable
from control_plane.schedules.book import ScheduleBook
from control_plane.schedules.clockwork import Clockwork
from control_plane.schedules.schedule import InvalidSchedule, Schedule, ScheduleNotFound, ScheduleTaken
from control_plane.schedules.times import Spec
from control_plane.storage.database import database
from control_plane.storage.migrate import upgrade
from control_plane.storage.schedules import SqlSchedules

ACME = TenantId("acme")


class SilentBus:
    async def broadcast(self, subject: str, payload: bytes) -> None: ...


class Wall:
    """A wall clock that only moves when told."""

    def __init__(self) -> None:
        self.ms = 1_000_000_000_000
        self._real = SystemClock()

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        await self._real.sleep(seconds)


class Desk:
    def __init__(self, store: SqlSchedules) -> None:
        self.store = store
        self.wall = Wall()
        self.starts: list[tuple[str, str]] = []
        self._ids = iter(range(10**6))
        self.book = ScheduleBook(store, bus=SilentBus(), clock=self.wall, new_id=lambda: f"{next(self._ids):026d}")

    def replica(self) -> Clockwork:
        return Clockwork(self.store, start=self.start, is_ours=lambda _: True, bus=SilentBus(), clock=self.wall)

    async def start(self, tenant, workflow, input, execution) -> None:
        self.starts.append((workflow, execution))

    async def made(self, name="n", **spec) -> Schedule:
        said = Spec(**{"every_ms": 1_000, **spec})
        return (await self.book.create(ACME, name, "w", {"n": 1}, said))[0]


@pytest.fixture
async def desk(database_dsn: str) -> AsyncIterator[Desk]:
    async with database(database_dsn) as db:
        await upgrade(db)
        yield Desk(SqlSchedules(db))


async def test_a_schedule_comes_back_as_it_was_made_and_the_same_again_changes_nothing(desk: Desk) -> None:
    made = await desk.made(cron="0 8 * * *", every_ms=None, timezone="Europe/Berlin", jitter_ms=5)

    assert await desk.book.find(ACME, "n") == made
    assert await desk.book.create(ACME, "n", "w", {"n": 1}, made.spec) == (made, False)
    with pytest.raises(ScheduleTaken):
        await desk.made(every_ms=2_000)
    with pytest.raises(ScheduleNotFound):
        await desk.book.find(TenantId("other"), "n")


async def test_what_cannot_fire_is_refused_and_not_kept(desk: Desk) -> None:
    with pytest.raises(InvalidSchedule):
        await desk.made(cron="x", every_ms=None)

    assert await desk.book.list(ACME, limit=10) == []


async def test_only_the_next_revision_takes_the_place_of_one(desk: Desk) -> None:
    made = await desk.made()
    newer = msgspec.structs.replace(made, last_at_ms=7, revision=1)

    assert await desk.store.replace(newer)
    assert not await desk.store.replace(newer)
    assert await desk.book.find(ACME, "n") == newer


async def test_a_paused_one_is_not_active_and_goes_on_from_now(desk: Desk) -> None:
    await desk.made()
    await desk.book.pause(ACME, "n")
    assert list(await desk.store.active()) == []
    desk.wall.ms += 60_000

    resumed = await desk.book.resume(ACME, "n")

    assert resumed.next_at_ms == desk.wall.ms + 1_000
    assert await desk.store.active() == [resumed]
    await desk.book.remove(ACME, "n")
    with pytest.raises(NotFound):
        await desk.book.pause(ACME, "n")


async def test_two_replicas_that_watch_the_same_schedule_start_each_moment_under_one_id(desk: Desk) -> None:
    await desk.made(overlap="allow", catch_up_ms=10_000)
    replicas = [desk.replica(), desk.replica()]
    for _ in range(5):
        desk.wall.ms += 1_000
        await asyncio.gather(*(replica.tick() for replica in replicas))
    for replica in replicas:
        replica._look_again()
        await replica.tick()

    assert len({execution for _, execution in desk.starts}) == 5
    assert (await desk.book.find(ACME, "n")).progress.fired == 5


async def test_a_replica_that_dies_between_starting_and_remembering_is_repeated_without_harm(desk: Desk) -> None:
    await desk.made(overlap="allow")
    doomed = desk.replica()
    keep = desk.store.replace

    async def away(_: Schedule) -> bool:
        raise StorageUnavailable("it is away")

    desk.wall.ms += 1_000
    desk.store.replace = away  # type: ignore[method-assign]
    await doomed.tick()
    desk.store.replace = keep  # type: ignore[method-assign]
    await desk.replica().tick()

    assert len(desk.starts) == 2
    assert len(set(desk.starts)) == 1


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_what_was_started_while_somebody_paused_it_is_remembered(desk: Desk, overlap: str) -> None:
    await desk.made(overlap=overlap, catch_up_ms=10_000)
    replica = desk.replica()
    just_start = desk.start

    async def pausing(*args) -> None:
        await just_start(*args)
        await desk.book.pause(ACME, "n")

    desk.start = pausing  # type: ignore[method-assign]
    desk.wall.ms += 3_000
    await desk.replica().tick()
    await replica.tick()

    found = await desk.book.find(ACME, "n")
    assert found.progress.fired == len(desk.starts) > 0
    assert {fire.execution for fire in found.progress.recent} == {execution for _, execution in desk.starts}
    assert found.paused_at_ms is not None
    assert len(found.progress.open) == (overlap == "skip")


async def test_an_idle_schedule_is_read_twice_a_minute_and_no_more(desk: Desk) -> None:
    await desk.made(every_ms=3_600_000)
    reads = 0
    active = desk.store.active

    async def counted():
        nonlocal reads
        reads += 1
        return await active()

    desk.store.active = counted  # type: ignore[method-assign]
    replica = desk.replica()
    for _ in range(60):
        await replica.tick()
        desk.wall.ms += 1_000

    assert reads == 2
