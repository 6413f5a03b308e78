import asyncio

import pytest

from agentflow.clock import ControlledClock
from agentflow.ids import ExecutionId
from control_plane.orchestrator.timers import Timers

ONE, TWO = ExecutionId("exec_1"), ExecutionId("exec_2")


@pytest.fixture
async def ticking():
    clock, fired = ControlledClock(), []
    timers = Timers(clock, fired.append)
    running = asyncio.create_task(timers.run())
    await asyncio.sleep(0)

    async def advance(seconds):
        for _ in range(round(seconds * 10)):
            await clock.advance(0.1)
            for _ in range(5):
                await asyncio.sleep(0)

    yield timers, clock, fired, advance
    running.cancel()


async def test_an_execution_is_woken_when_its_moment_comes_and_not_before(ticking):
    timers, clock, fired, advance = ticking
    timers.arm(ONE, clock.now_ms() + 1_000)

    await advance(0.8)
    assert fired == []
    await advance(0.4)
    assert fired == [ONE]
    await advance(5)
    assert fired == [ONE]


async def test_the_earlier_of_two_moments_wins_and_the_later_is_left_to_who_is_woken(ticking):
    timers, clock, fired, advance = ticking
    timers.arm(ONE, clock.now_ms() + 5_000)
    timers.arm(ONE, clock.now_ms() + 1_000)

    await advance(2)
    assert fired == [ONE]
    await advance(5)
    assert fired == [ONE]


async def test_a_disarmed_execution_sleeps_on(ticking):
    timers, clock, fired, advance = ticking
    timers.arm(ONE, clock.now_ms() + 1_000)
    timers.arm(TWO, clock.now_ms() + 1_000)
    timers.arm(ONE, None)

    await advance(3)

    assert fired == [TWO]


async def test_entries_of_ended_executions_do_not_pile_up(ticking):
    timers, clock, _, _ = ticking
    for number in range(5_000):
        execution = ExecutionId(f"exec_{number}")
        timers.arm(execution, clock.now_ms() + 300_000)
        timers.arm(execution, None)

    assert len(timers._heap) <= 1_001


async def test_looking_again_soon_means_within_a_few_seconds(ticking):
    timers, _, fired, advance = ticking
    timers.arm_soon(ONE)

    await advance(2)

    assert fired == [ONE]
