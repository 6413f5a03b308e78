"""What holds for every machine on every day.

`Run.give` checks after each message that folding the stored events gives the state that was decided, and goes on from
that state read back from JSON; the heart itself refuses a program that asks for what is open or waits for nothing.
"""

from collections import Counter
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.execution import events as happened
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, Status, next_wakeup, pending_commands
from planners import kinds
from tests.unit.planners.random_machines import Day, grown

SEEDS = st.integers(min_value=0, max_value=2**32)


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS)
def test_every_machine_ends_asks_for_nothing_twice_and_leaves_nothing_running(machine, day):
    lived = Day(grown(machine), day, meddle=True).live()

    assert set(lived.begun.values()) <= {1}, "an attempt was begun twice"
    assert lived.open == {}, "the world still does what nobody waits for"
    assert pending_commands(lived.state) == ()
    assert next_wakeup(lived.state) is None


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS)
def test_no_step_runs_more_often_than_the_plan_says(machine, day):
    text = grown(machine)
    lived = Day(text, day).live()
    shape = kinds.compile(text).plan().shape

    begun = Counter(it.name for it in lived.log if isinstance(it, happened.StepScheduled) and it.attempt == 1)
    bounds = {count.name: count for count in shape.steps}
    assert all(bounds[name].max is None or count <= bounds[name].max for name, count in begun.items())
    assert shape.max is None or begun.total() <= shape.max
    if lived.state.status is Status.COMPLETED:
        assert begun.total() >= shape.min


@settings(max_examples=40, deadline=None)
@given(SEEDS, SEEDS)
def test_what_is_over_is_forgotten(machine, day):
    lived = Day(grown(machine), day).live()

    last = reduce(evolve, lived.log[:-1], ExecutionState())
    if lived.state.status is Status.COMPLETED:
        assert [key for key in last.memory if key[0] not in "=#u" or "/" in key] == []


@settings(max_examples=40, deadline=None)
@given(SEEDS, SEEDS)
def test_a_step_that_succeeded_is_never_run_again(machine, day):
    lived = Day(grown(machine), day, meddle=True).live()

    done: set[str] = set()
    for event in lived.log:
        assert not (isinstance(event, happened.StepScheduled) and event.path in done)
        if isinstance(event, happened.StepSucceeded):
            done.add(event.path)


@pytest.mark.parametrize("seed", range(30))
def test_the_same_machine_on_the_same_day_lives_the_same_life(seed):
    first, second = (Day(grown(seed), seed, meddle=True).live() for _ in range(2))

    assert first.log == second.log
