"""Whenever a worker is killed, a keyed call has one effect, and one that must not be repeated is not (UA-6 b)."""

import pytest

from tests.simulation.killed_calls import KINDS, count, places_of

RUNS = 5  # of each place and kind; `python -m tests.simulation.killed_calls 1000` is the whole of it


@pytest.mark.parametrize("kind", KINDS)
async def test_no_death_of_a_worker_makes_a_call_twice_and_every_doubt_surfaces(kind):
    assert len(places_of(kind)) >= 20
    for place in places_of(kind):
        found = await count(kind, place, RUNS)
        assert found["died"] == RUNS, f"{place!r} was never reached"
