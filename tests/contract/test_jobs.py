"""What every store of jobs promises, and that a job ends once, whoever dies with it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from agentflow import limits
from agentflow.clock import SystemClock
from agentflow.errors import Rejected
from agentflow.ids import TenantId
from agentflow.testing import eventually
from control_plane.jobs.job import JobNotFound, TooManyJobs
from control_plane.jobs.runner import Jobs
from control_plane.storage.database import database
from control_plane.storage.jobs import SqlJobs
from control_plane.storage.migrate import upgrade

ACME = TenantId("acme")


class Wall(SystemClock):
    """Real time, and what is put on top of it."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Office:
    def __init__(self, store: SqlJobs) -> None:
        self.store = store
        self.wall = Wall()
        self.begun = 0
        self.gate = asyncio.Event()
        self._ids = count()

    async def add_up(self, tenant, request, progress):
        self.begun += 1
        for at, number in enumerate(request["numbers"]):
            progress(at, len(request["numbers"]))
            if number < 0:
                raise Rejected("Not below zero.", hint="Count upwards.")
        await self.gate.wait()
        return {"sum": sum(request["numbers"])}

    def control_plane(self) -> Jobs:
        return Jobs(self.store, {"add": self.add_up}, clock=self.wall, new_id=lambda: f"{next(self._ids):026d}")


@pytest.fixture
async def office(database_dsn) -> AsyncIterator[Office]:
    async with database(database_dsn) as db:
        await upgrade(db)
        yield Office(SqlJobs(db))


async def ended(jobs: Jobs, job: str):
    return [seen async for seen in jobs.watch(ACME, job)][-1]


async def test_a_job_is_done_and_its_result_kept(office):
    office.gate.set()
    jobs = office.control_plane()
    async with jobs.running():
        job = await jobs.submit(ACME, "add", {"numbers": [1, 2, 3]})
        over = await ended(jobs, job.id)

    assert (over.status, over.result, over.attempt) == ("succeeded", {"sum": 6}, 1)
    assert await office.control_plane().find(ACME, job.id) == over
    with pytest.raises(JobNotFound):
        await jobs.find(TenantId("other"), job.id)


async def test_a_job_that_cannot_be_done_says_why(office):
    office.gate.set()
    jobs = office.control_plane()
    async with jobs.running():
        over = await ended(jobs, (await jobs.submit(ACME, "add", {"numbers": [1, -1]})).id)

    assert (over.status, over.error, over.result) == ("failed", "AF1000: Not below zero.", None)


async def test_the_same_id_is_the_same_job(office):
    jobs = office.control_plane()
    first = await jobs.submit(ACME, "add", {"numbers": [1]}, id="job_1")
    again = await jobs.submit(ACME, "add", {"numbers": [2]}, id="job_1")

    assert again == first


async def test_a_job_whose_control_plane_died_is_taken_up_by_another_and_ends_once(office):
    dead, living = office.control_plane(), office.control_plane()
    async with dead.running():
        job = await dead.submit(ACME, "add", {"numbers": [4]})
        await eventually(lambda: office.begun == 1, within_s=10)
    assert (await dead.find(ACME, job.id)).status == "running"

    async with living.running():
        await asyncio.sleep(0)
        assert office.begun == 1, "somebody may still have it"
        office.wall.ahead_ms += round(limits.JOB_LEASE_S * 1000) + 1
        living._wake.set()
        await eventually(lambda: office.begun == 2, within_s=10)
        office.gate.set()
        over = await ended(living, job.id)

    assert (over.status, over.result, over.attempt) == ("succeeded", {"sum": 4}, 2)


async def test_who_lost_a_job_writes_nothing_of_it_any_more(office):
    jobs = office.control_plane()
    job = await jobs.submit(ACME, "add", {"numbers": [4]})
    first = await office.store.take(office.wall.now_ms(), until_ms=0)
    second = await office.store.take(office.wall.now_ms(), until_ms=office.wall.now_ms() + 60_000)

    assert first is not None
    assert second is not None
    assert (first.attempt, second.attempt) == (1, 2)
    assert not await office.store.change(first, until_ms=0)
    assert await office.store.change(second, until_ms=0)
    assert (await jobs.find(ACME, job.id)).attempt == 2


async def test_a_job_that_kills_whoever_does_it_is_given_up(office):
    jobs = office.control_plane()
    job = await jobs.submit(ACME, "add", {"numbers": [4]})
    for _ in range(limits.JOB_ATTEMPTS_MAX):
        assert await office.store.take(office.wall.now_ms(), until_ms=0) is not None
    async with jobs.running():
        over = await ended(jobs, job.id)

    assert over.status == "failed"
    assert office.begun == 0
    assert "control planes were lost" in str(over.error)


async def test_two_that_reach_for_a_job_do_not_both_get_it(office):
    await office.control_plane().submit(ACME, "add", {"numbers": [4]})
    until_ms = office.wall.now_ms() + 60_000

    taken = await asyncio.gather(*(office.store.take(office.wall.now_ms(), until_ms=until_ms) for _ in range(8)))

    assert sum(job is not None for job in taken) == 1


async def test_a_tenant_may_have_so_many_unfinished_and_no_more(office, monkeypatch):
    monkeypatch.setattr(limits, "JOBS_UNFINISHED_MAX", 2)
    jobs = office.control_plane()
    for _ in range(2):
        await jobs.submit(ACME, "add", {"numbers": []})

    with pytest.raises(TooManyJobs):
        await jobs.submit(ACME, "add", {"numbers": []})
    await jobs.submit(TenantId("other"), "add", {"numbers": []})
