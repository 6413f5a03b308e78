"""The time that control planes share: theirs is the database's, whatever their machine's wall clock does."""

import time

import pytest

from control_plane.storage.database import database
from control_plane.storage.migrate import upgrade
from control_plane.storage.shared_clock import SharedClock, shared_clock

DAY_MS = 24 * 3600 * 1000


def told(clock: SharedClock, now_ms: int, *, took_s: float = 0.002) -> int:
    now_s = clock.monotonic_s()
    return clock.told(now_ms, asked_s=now_s - took_s / 2, answered_s=now_s + took_s / 2)


@pytest.mark.parametrize("wrong_ms", [DAY_MS, -DAY_MS, 500])
def test_a_clock_that_is_wrong_says_so_and_is_right_from_then_on(wrong_ms):
    clock = SharedClock()
    right_ms = clock.now_ms() - wrong_ms

    assert told(clock, right_ms) == pytest.approx(wrong_ms, abs=50)
    assert clock.now_ms() == pytest.approx(right_ms, abs=50)
    assert told(clock, right_ms) == 0


@pytest.mark.parametrize(("wrong_ms", "took_s"), [(40, 0.002), (900, 2.0)])
def test_what_the_way_of_the_question_may_explain_does_not_move_it(wrong_ms, took_s):
    clock = SharedClock()
    assert told(clock, clock.now_ms() + wrong_ms, took_s=took_s) == 0


def test_it_goes_on_while_the_wall_clock_of_its_machine_stands_still_or_jumps(monkeypatch):
    clock = SharedClock()
    before_ms = clock.now_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    steady_s = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: steady_s() + 7)

    assert clock.now_ms() == pytest.approx(before_ms + 7_000, abs=1_000)


async def test_the_first_look_is_made_before_anybody_may_ask(postgres_dsn, monkeypatch):
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + DAY_MS * 1_000_000)
    async with database(postgres_dsn) as db:
        await upgrade(db)
        async with shared_clock(db) as clock:
            assert clock.now_ms() == pytest.approx(right_ns() // 1_000_000, abs=2_000)
