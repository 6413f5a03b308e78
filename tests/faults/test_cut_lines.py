"""Lines that are cut, servers that forget or come back, clocks that are wrong (F-3, F-9, F-11, F-13, F-18, F-19)."""

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from agentflow.bus.nats_jetstream import jetstream
from agentflow.clock import SystemClock
from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import StepSucceeded
from agentflow.limits import SHARD_ACK_WAIT_S
from agentflow.testing import eventually
from tests.faults.deployment import LEASE_S, NOTICED_S, deployed
from tests.faults.proxy import proxied

CROWDS, EACH = 10, 55
CONNECTIONS = 1_000  # a worker's own, from one process: each reconnects, and looks after its streams, as a worker does
AT_ONCE = 50


async def test_a_bus_wiped_while_steps_wait_and_run_loses_none(nats, postgres_dsn, tmp_path):
    """F-3."""
    async with deployed(tmp_path, postgres_dsn, nats) as here:
        await here.worker()
        plane = await here.plane()
        for number in range(CROWDS):
            assert await here.start(plane, "crowd", {"items": list(range(EACH))}, key=f"k{number}")
        await eventually(lambda: here.ran("patient") >= 50, within_s=30)

        here.evidence.bus_forgot = True
        await nats.restart(wipe=True)
        here.let_go()

        history = await here.check(within_s=90)
        assert sum(type(one.event).__name__ == "StepSucceeded" for one in history.events) == CROWDS * EACH


@pytest.mark.parametrize("way", ["both ways", "one way"])
async def test_a_plane_cut_from_its_database_loses_its_shards_and_gets_them_back(nats, postgres_dsn, tmp_path, way):
    """F-18."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(postgres_dsn) as (line, dsn):
        await here.worker()
        cut, whole = await here.plane(dsn=dsn), await here.plane()
        await eventually(lambda: (cut.shards, whole.shards) == (8, 8), within_s=20)
        for plane in (cut, whole):
            for number in range(3):
                assert await here.start(plane, "line", key=f"{plane.process.pid}/{number}")
        await eventually(lambda: here.ran("patient") == 6, within_s=20)

        if way == "one way":
            line.cut_down = True
        else:
            line.cut()
        here.let_go()
        await eventually(lambda: whole.shards == 16, within_s=2 * LEASE_S + NOTICED_S)
        await here.check(within_s=SHARD_ACK_WAIT_S + 10)  # and what was sent to the one that is cut reaches the other

        line.mend()
        await eventually(lambda: (cut.shards, whole.shards) == (8, 8), within_s=60)
        assert await here.start(cut, "nap", key="after")
        await here.check()


async def test_a_plane_cut_from_the_bus_goes_on_when_it_hears_again(nats, postgres_dsn, tmp_path):
    """F-18: it keeps its shards, because a bus that is away for everybody looks the same."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(nats.url) as (line, nats_url):
        await here.worker()
        cut, whole = await here.plane(nats_url=nats_url), await here.plane()
        await eventually(lambda: (cut.shards, whole.shards) == (8, 8), within_s=20)
        line.cut()
        for plane in (cut, whole):
            for number in range(3):
                assert await here.start(plane, "line", key=f"{plane.process.pid}/{number}"), (
                    "a bus is not needed for that"
                )
        here.let_go()
        line.mend()

        await here.check()


async def test_a_database_that_restarts_while_a_dead_owners_executions_are_taken_up_leaves_none_behind(nats, tmp_path):
    """F-11: struck when the survivor has the shards and is reading what is open in them."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(postgres_server(tmp_path / "pg"))
        database = await server.create_database()
        line, dsn = await stack.enter_async_context(proxied(database))
        here = await stack.enter_async_context(deployed(tmp_path, dsn, nats))
        await here.worker()
        first = await here.plane()
        survivor = await here.plane(AF_LEASE_S="10")  # or what it took would be free again after the restart
        await eventually(lambda: (first.shards, survivor.shards) == (8, 8), within_s=20)
        for number in range(6):
            assert await here.start(first, "line", key=f"k{number}")
        await eventually(lambda: here.ran("patient") == 6, within_s=20)
        for number in range(6):  # of these nobody hears until somebody looks for them
            assert await here.start(first, "nap", key=f"n{number}")
        await eventually(lambda: here.ran("quick") == 12, within_s=20)
        struck = asyncio.Event()

        def strike() -> bool:
            os.kill(server.process.pid, signal.SIGQUIT)  # immediate: no client is waited for
            struck.set()
            return False

        first.kill()
        line.on_answer_to(b"event_store", strike)  # nothing else is read or written meanwhile
        await asyncio.wait_for(struck.wait(), 20)
        await server.process.wait()
        again = await stack.enter_async_context(postgres_server(tmp_path / "pg"))
        line.target = ("127.0.0.1", again.port)
        line.reset()
        here.let_go()

        await here.check(within_s=60)
        assert survivor.process.exit_code is None


async def test_planes_whose_clocks_are_wrong_share_the_databases_time_and_their_timers_fire_once(
    nats, postgres_dsn, tmp_path
):
    """F-13: one a day ahead, one thrown back a day and one whose clock stops, both while executions nap."""
    async with deployed(tmp_path, postgres_dsn, nats) as here:
        begun_ms = SystemClock().now_ms()
        await here.worker()
        planes = [await here.plane()]
        planes += [await here.plane(module="tests.faults.wrong_clock", WRONG=how) for how in ("+24h", "-24h", "frozen")]
        await eventually(lambda: [plane.shards for plane in planes] == [4, 4, 4, 4], within_s=20)
        for plane in planes:
            for number in range(3):
                assert await here.start(plane, "nap", key=f"{plane.process.pid}/{number}")
        for plane in planes[2:]:
            os.kill(plane.process.pid, signal.SIGUSR1)
        for plane in planes:
            assert await here.start(plane, "nap", key=f"{plane.process.pid}/later")

        history = await here.check(within_s=20)
        assert [plane.shards for plane in planes] == [4, 4, 4, 4], "nobody's lease ran out"
        times = [recorded.event.at_ms for recorded in history.events]
        assert begun_ms <= min(times) <= max(times) <= SystemClock().now_ms(), "they agree on the time"


async def test_a_thousand_that_reconnect_at_once_find_their_bus_each_at_its_own_moment_and_work_goes_on(
    nats, postgres_dsn, tmp_path
):
    """F-19."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, AsyncExitStack() as crowd:
        await here.worker()
        plane = await here.plane()
        buses = []
        for first in range(0, CONNECTIONS, AT_ONCE):
            opening = [jetstream(nats.url, name=f"crowd-{first + n}", tends_streams=False) for n in range(AT_ONCE)]
            buses += await asyncio.gather(*(crowd.enter_async_context(each) for each in opening))
        assert await here.start(plane, "line", key="k")
        await eventually(lambda: here.ran("patient") == 1, within_s=20)

        def pauses() -> list[float]:
            """How long each waits before it tries again; until it has tried in vain, as long as everybody."""
            return [round(bus._connection.options["reconnect_time_wait"], 2) for bus in buses]

        at_first = pauses()
        await nats.process.stop()
        await eventually(lambda: at_first[0] not in pauses(), within_s=20)
        spread = Counter(pauses())
        await nats.restart()
        back_s = time.monotonic()
        here.let_go()
        await eventually(lambda: all(bus.connected for bus in buses), within_s=10)
        await here.check(within_s=10)

        assert time.monotonic() - back_s < 10
        assert max(spread.values()) < CONNECTIONS / 5, f"too many come back together: {spread.most_common(3)}"


@pytest.mark.parametrize("lost", ["its signs of work", "all it says"])
async def test_a_live_worker_whose_signs_do_not_arrive_is_fenced_and_its_step_runs_under_the_next_attempt(
    nats, postgres_dsn, tmp_path, lost
):
    """F-9: its ack wait passes while it works on, and the bus hands its step to another."""
    async with deployed(tmp_path, postgres_dsn, nats) as here, proxied(nats.url) as (line, nats_url):
        plane = await here.plane()
        await here.worker(nats_url=nats_url)
        execution = await here.start(plane, "line", key="k")
        await eventually(lambda: here.ran("patient") == 1, within_s=20)
        if lost == "all it says":
            line.cut_up = True
        else:
            line.garble(b"+WPI", b"+???")
        await here.worker()

        await eventually(lambda: here.ran("patient") == 2, within_s=30)
        here.let_go()
        if lost == "all it says":
            await here.check()
            said = asyncio.Event()
            line.on_request(f"{execution}/b#1/result".encode(), lambda: said.set() is None)
            line.mend()
            await asyncio.wait_for(said.wait(), 30)  # what the first one had to say, once it can

        history = await here.check()
        succeeded = [one.event for one in history.events if isinstance(one.event, StepSucceeded)]
        (result,) = [event for event in succeeded if event.path == "b"]
        assert result.attempt > 1, "the first attempt was given up, and its late result with it"
