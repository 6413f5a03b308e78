"""Control planes that die or are cut off at the worst moment, on real servers (F-1, F-2, F-7, F-12).

The worst moments are found on the wire: a proxy sees the commit pass, or the publish, and strikes there.
"""

import asyncio

import pytest

from agentflow.execution.events import StepScheduled
from agentflow.testing import eventually
from tests.faults.deployment import NOTICED_S, deployed
from tests.faults.proxy import proxied

STARTED = b"execution.started.v1"
STEP = b".patient.in "  # as it is published, whatever the pool


async def until_accepted(here, plane, workflow, key):
    """As a client that got no answer: again, with the same key."""

    async def again():
        return await here.start(plane, workflow, key=key)

    return await eventually(again, within_s=30)


async def test_a_plane_killed_between_its_commit_and_the_answer_has_started_one_execution(nats, postgres_dsn, tmp_path):
    """F-1."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(postgres_dsn) as (line, dsn):
        await here.worker()
        first = await here.plane(dsn=dsn)
        here.let_go()

        def kill() -> bool:
            first.kill()
            return False

        line.on_answer_to(STARTED, kill)
        assert await here.start(first, "line", key="once") is None
        second = await here.plane()
        execution = await until_accepted(here, second, "line", "once")

        history = await here.check()
        assert {event.execution for event in history.events} == {execution}, "the key stands for what was committed"


async def test_a_commit_whose_connection_was_reset_is_looked_up_and_not_done_twice(nats, postgres_dsn, tmp_path):
    """F-7."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(postgres_dsn) as (line, dsn):
        await here.worker()
        plane = await here.plane(dsn=dsn)
        here.let_go()

        struck = []

        def reset() -> bool:
            struck.append(True)
            line.reset()
            return False

        line.on_answer_to(STARTED, reset)
        line.on_answer_to(b"step.succeeded.v1", reset)
        await here.start(plane, "line", key="once")
        await until_accepted(here, plane, "line", "once")

        history = await here.check()
        assert len(struck) == 2, "both commits were done, and nobody was told"
        assert len({event.execution for event in history.events}) == 1


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
async def test_a_plane_killed_around_the_publish_of_a_committed_step_loses_no_step_and_runs_none_twice(
    nats, postgres_dsn, tmp_path, is_sent
):
    """F-2."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(nats.url) as (line, nats_url):
        for _ in range(2):  # one of them would notice by itself that it was given a step twice
            await here.worker()
        first = await here.plane(nats_url=nats_url)

        def kill() -> bool:
            first.kill()
            return is_sent

        line.on_request(STEP, kill)
        await here.start(first, "line", key="once")
        await asyncio.wait_for(first.process.wait(), 20)  # or it was never struck
        second = await here.plane()
        await until_accepted(here, second, "line", "once")
        await eventually(lambda: "steps.sent_again" in second.process.output(), within_s=20)
        await eventually(lambda: here.ran("patient") > 0, within_s=20)
        here.let_go()

        history = await here.check()
        assert len({event.execution for event in history.events}) == 1
        attempts = {one.event.attempt for one in history.events if isinstance(one.event, StepScheduled)}
        assert attempts == {1}, "no step had to wait for its time-out"
        assert here.ran("patient") == 1, "what was sent before is dropped when it is sent again"


async def test_a_plane_that_starts_beside_another_runs_nothing_of_it_twice(nats, postgres_dsn, tmp_path):
    """F-12."""
    async with deployed(tmp_path, postgres_dsn, nats) as here:
        for _ in range(2):  # one of them would notice by itself that it was given a step twice
            await here.worker()
        first = await here.plane()
        for number in range(6):
            assert await here.start(first, "line", key=f"k{number}")
        await eventually(lambda: here.ran("patient") == 6, within_s=20)

        second = await here.plane()
        await eventually(lambda: (first.shards, second.shards) == (8, 8), within_s=20)
        here.let_go()

        await here.check()
        assert here.ran("patient") == 6, "what ran went on"


async def test_planes_share_the_shards_as_they_come_and_go_and_a_dead_ones_are_taken_within_two_leases(
    nats, postgres_dsn, tmp_path
):
    lease_s = 2 * NOTICED_S  # what is given back is taken long before a lease runs out
    async with deployed(tmp_path, postgres_dsn, nats) as here:
        await here.worker()
        planes = []
        for shares in ([16], [8, 8], [5, 5, 6]):
            planes.append(await here.plane(AF_LEASE_S=str(lease_s)))
            await eventually(lambda shares=shares: sorted(plane.shards for plane in planes) == shares, within_s=20)
        for number, plane in enumerate(planes):
            assert await here.start(plane, "line", key=f"k{number}")
        await eventually(lambda: here.ran("patient") == len(planes), within_s=20)

        leaving = planes.pop()
        await leaving.process.stop()
        await eventually(lambda: [plane.shards for plane in planes] == [8, 8], within_s=NOTICED_S)
        planes.pop().kill()
        await eventually(lambda: planes[0].shards == 16, within_s=2 * lease_s + NOTICED_S)

        here.let_go()
        await here.check()
        assert here.ran("patient") == 3, "what ran went on"
