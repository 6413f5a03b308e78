import asyncio

from hypothesis import given
from hypothesis import strategies as st

from agentflow.clock import ControlledClock, SystemClock, parse_rfc3339, rfc3339


async def test_a_controlled_clock_wakes_sleepers_in_the_order_of_their_moments():
    clock, woken = ControlledClock(), []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic_s()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 3), ("soon", 1)):
            group.create_task(sleeper(name, seconds))
        await asyncio.sleep(0)
        await clock.advance(5)

    assert woken == [("soon", 1), ("late", 3)]


async def test_a_controlled_clock_stands_still_until_it_is_moved():
    clock = ControlledClock(start_ms=1_000)

    assert (clock.now_ms(), clock.now_ms()) == (1_000, 1_000)
    await clock.advance(1.5)
    assert clock.now_ms() == 2_500


def test_the_system_clock_goes_forward():
    clock = SystemClock()
    before = clock.monotonic_s()

    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_s() >= before


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_a_written_moment_reads_back_to_the_millisecond(at_ms):
    assert parse_rfc3339(rfc3339(at_ms)) == at_ms
