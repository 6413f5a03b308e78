"""What follows for a schedule when time has passed: overlaps, what was missed, and who dies in between."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.ids import TenantId
from control_plane.schedules.firing import execution_of, turn, with_fires
from control_plane.schedules.schedule import Fire, Schedule
from control_plane.schedules.times import Spec

NONE = frozenset()


def schedule(**spec) -> Schedule:
    said = Spec(**{"every_ms": 1_000, "catch_up_ms": 60_000, **spec})
    return Schedule(TenantId("t"), "sch_1", "n", "w", {}, said, created_at_ms=0, next_at_ms=1_000)


def fire(before: Schedule, now_ms: int, ended=NONE) -> tuple[list[int], Schedule]:
    """One turn, all of whose starts succeed."""
    found = turn(before, now_ms=now_ms, ended=ended)
    if found is None:
        return [], before
    after = found.after
    for at_ms in found.starts:
        after = with_fires(after, [Fire(at_ms, "started", execution_of(after, at_ms))])
    return list(found.starts), after


def test_nothing_happens_before_its_moment():
    assert turn(schedule(), now_ms=999, ended=NONE) is None


def test_a_moment_starts_one_execution_and_the_next_one_follows_from_it():
    starts, after = fire(schedule(), 1_000)

    assert (starts, after.next_at_ms, after.last_at_ms, after.progress.fired) == ([1_000], 2_000, 1_000, 1)
    assert turn(after, now_ms=1_999, ended=NONE) is None
    assert turn(after, now_ms=500, ended=NONE) is None, "a clock that steps back fires nothing again"


def test_what_was_missed_for_too_long_is_counted_and_not_started():
    starts, after = fire(schedule(overlap="allow", catch_up_ms=2_500), 10_000)

    assert (starts, after.progress.missed, after.next_at_ms) == ([8_000, 9_000, 10_000], 7, 11_000)


def test_while_one_is_under_way_the_next_moments_are_skipped():
    starts, after = fire(schedule(overlap="skip"), 3_000)
    assert (starts, after.progress.skipped) == ([1_000], 2)

    starts, after = fire(after, 4_000)
    assert (starts, after.progress.skipped) == ([], 3)

    starts, after = fire(after, 5_000, frozenset(after.progress.open))
    assert starts == [5_000]
    said = [(fire.at_ms, fire.outcome) for fire in after.progress.recent]
    assert said[0] == (5_000, "started")
    assert said.count((3_000, "skipped")) == 1


def test_queued_moments_start_one_after_the_other_in_their_order():
    starts, after = fire(schedule(overlap="queue", ends_at_ms=4_000), 3_000)
    assert (starts, after.progress.waiting, after.next_at_ms) == ([1_000], (2_000, 3_000), None)

    assert fire(after, 3_500)[0] == []
    order = []
    while after.progress.open:
        starts, after = fire(after, 999_000, frozenset(after.progress.open))  # long past the catch-up window
        order += starts
        if not starts:
            break

    assert order == [2_000, 3_000]


def test_a_queue_has_a_bound():
    _, after = fire(schedule(overlap="queue", catch_up_ms=10**9), 200_000)

    assert (len(after.progress.waiting), after.progress.skipped) == (99, 100)


def test_a_start_that_is_refused_is_told_and_the_schedule_goes_on():
    found = turn(schedule(), now_ms=1_000, ended=NONE)

    after = with_fires(found.after, [Fire(1_000, "failed", reason="AF1201: There is no workflow.")])

    assert (after.progress.fired, after.progress.open, after.next_at_ms) == (0, (), 2_000)
    assert after.progress.recent[0].reason.startswith("AF1201")


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@given(st.data())
def test_whoever_dies_and_however_many_try_each_moment_has_one_execution(overlap, data):
    """Two replicas with their own, possibly stale, memory; each may die after starting and before remembering; clocks
    jump. The truth is one row that only the next revision may replace."""
    truth = schedule(overlap=overlap, ends_at_ms=20_000, catch_up_ms=3_000)
    begun: dict[str, int] = {}
    ended: set[str] = set()
    memory = {"a": truth, "b": truth}
    now = 0
    for _ in range(data.draw(st.integers(1, 40))):
        who = data.draw(st.sampled_from("ab"))
        now += data.draw(st.sampled_from([0, 300, 1_000, 5_000, -2_000]))
        if data.draw(st.booleans()):
            memory[who] = truth
        if begun and data.draw(st.booleans()):
            ended.add(data.draw(st.sampled_from(sorted(begun))))
        found = turn(memory[who], now_ms=now, ended=frozenset(ended))
        if found is None:
            continue
        after = found.after
        for at_ms in found.starts:
            execution = execution_of(after, at_ms)
            assert begun.setdefault(execution, at_ms) == at_ms
            after = with_fires(after, [Fire(at_ms, "started", execution)])
        if data.draw(st.booleans()):
            continue  # it died here
        after = msgspec.structs.replace(after, revision=memory[who].revision + 1)
        if after.revision == truth.revision + 1:
            truth = memory[who] = after

    assert len(begun) == len(set(begun.values())), "one moment has two executions"
    assert all(at_ms % 1_000 == 0 and at_ms < 20_000 for at_ms in begun.values())
