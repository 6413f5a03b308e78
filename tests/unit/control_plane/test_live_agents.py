"""Who is there: what heartbeats say, and what their absence does."""

import msgspec
import pytest

from agentflow.clock import ControlledClock
from agentflow.contracts.step import Heartbeat, HeldStep
from control_plane.registry.agents import LiveAgents

STEP = HeldStep("exec_1", "classify", 1)


@pytest.fixture
def clock():
    return ControlledClock()


@pytest.fixture
def lost():
    return []


@pytest.fixture
def agents(clock):
    return LiveAgents(clock, lost_after_s=5)


def beat(live, worker="wrk_1", /, **changes):
    fields = {"agents": {"classifier": 1}, "started_at_ms": 0, "at_ms": 0, "steps": (STEP,)} | changes
    live.heard("default", msgspec.json.encode(Heartbeat(worker=worker, **fields)))


async def pass_time(agents, clock, seconds, lost, *, can_hear=True):
    for _ in range(seconds):
        await clock.advance(1)
        lost += agents.check(can_hear=can_hear)


async def test_a_worker_that_falls_silent_is_told_once_with_what_it_held(agents, clock, lost):
    beat(agents)
    await pass_time(agents, clock, 5, lost)
    assert lost == []
    assert agents.holds(STEP)

    await pass_time(agents, clock, 5, lost)

    (told,) = lost
    assert (told.worker, told.agents, told.steps) == ("wrk_1", ("classifier",), (STEP,))
    assert agents.is_lost("default", "wrk_1")
    assert not agents.holds(STEP)
    assert agents.now("default") == []


async def test_a_worker_that_says_goodbye_is_not_lost(agents, clock, lost):
    beat(agents)
    beat(agents, steps=(), leaving=True)
    await pass_time(agents, clock, 10, lost)

    assert lost == []


async def test_a_worker_without_a_connection_is_lost_before_its_second_beat_is_missed(agents, clock, lost):
    beat(agents)
    await clock.advance(1.4)
    assert agents.check(can_hear=True, gone=[("default", "wrk_1")]) == []
    assert agents.heard_of(silent_s=1.5) == []
    await clock.advance(0.1)

    assert agents.heard_of(silent_s=1.5) == [("default", "wrk_1")]
    assert [each.worker for each in agents.check(can_hear=True, gone=[("default", "wrk_1")])] == ["wrk_1"]
    assert agents.heard_of() == []


async def test_who_was_heard_before_we_were_deaf_is_not_looked_for_until_heard_again(agents, clock):
    """It may not be back yet; and nobody is found where nobody has come back to."""
    beat(agents)
    await clock.advance(1)
    agents.check(can_hear=False)
    await clock.advance(2)
    assert agents.heard_of() == agents.heard_of(silent_s=1.5) == []

    beat(agents)

    assert agents.heard_of() == [("default", "wrk_1")]
    await clock.advance(2)
    assert agents.heard_of(silent_s=1.5) == [("default", "wrk_1")]


async def test_a_beat_that_came_while_it_was_asked_keeps_a_worker(agents, clock):
    beat(agents)
    await clock.advance(2)
    beat(agents)

    assert agents.check(can_hear=True, gone=[("default", "wrk_1")]) == []


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a\r\nPUB x 0", ">", "*", "x" * 65])
async def test_a_worker_whose_name_could_be_more_than_a_name_is_not_heard(agents, name):
    beat(agents, name)

    assert agents.heard_of() == []


async def test_nobody_is_lost_while_we_ourselves_cannot_hear_nor_just_after(agents, clock, lost):
    beat(agents)
    await pass_time(agents, clock, 60, lost, can_hear=False)
    await pass_time(agents, clock, 5, lost)

    assert lost == []
    assert not agents.is_lost("default", "wrk_1")
    await pass_time(agents, clock, 1, lost)
    assert len(lost) == 1


async def test_nobody_is_lost_because_we_ourselves_stood_still(agents, clock):
    beat(agents)
    await clock.advance(60)  # as a suspended process finds it

    assert agents.check(can_hear=True) == []


async def test_a_control_plane_that_has_just_begun_calls_nobody_lost(agents, clock, lost):
    assert not agents.is_lost("default", "wrk_unheard")
    await pass_time(agents, clock, 6, lost)
    assert agents.is_lost("default", "wrk_unheard")


async def test_draining_workers_are_not_counted_and_counts_add_up(agents):
    beat(agents)
    beat(agents, "wrk_2", agents={"classifier": 2, "tools": 0})
    beat(agents, "wrk_3", draining=True)

    assert [(agent.name, agent.workers, agent.running) for agent in agents.now("default")] == [
        ("classifier", 2, 3),
        ("tools", 1, 0),
    ]
