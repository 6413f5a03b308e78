"""A pause for a budget is an event like any other: it replays, and who may end it is in the state."""

from agentflow.execution import messages
from agentflow.execution.decide import decide
from agentflow.execution.events import type_of
from agentflow.execution.messages import Stamp, TimeReached
from agentflow.execution.state import ExecutionState, Status, decode_state, encode_state, next_wakeup
from tests.unit.agentflow.execution.replayed import digest_of, replayed
from tests.unit.agentflow.execution.test_decide import PROGRAM, report, start


def lived(*said):
    state, log = ExecutionState(), []
    for message in said:
        decision = decide(state, message, PROGRAM)
        state, log = decision.state, [*log, *decision.events]
    return state, log


def pause(at_ms=1_500, budget="bud_1", id="bud_1/2"):
    return messages.Pause(Stamp(at_ms), id, "It is used up.", budget)


def resume(at_ms=9_000_000, budget="bud_1"):
    return messages.Resume(Stamp(at_ms, hears=False), "bud_1/3/on", budget)


def test_time_stands_still_for_what_waits_for_a_budget():
    state, _ = lived(start(timeout_ms=60_000), pause())
    assert (state.status, state.held_by, next_wakeup(state)) == (Status.PAUSED, "bud_1", None)
    assert decode_state(encode_state(state)) == state

    state, log = lived(
        start(timeout_ms=60_000), pause(), resume(), report("a", at_ms=9_000_100), report("b", at_ms=9_000_200)
    )
    assert state.status is Status.COMPLETED
    assert "step.excused.v1" in [type_of(event) for event in log], "its time begins anew"


def test_a_pause_for_a_budget_replays_with_the_times_that_were_excused():
    _, log = lived(
        start(timeout_ms=60_000),
        pause(),
        report("a"),
        pause(budget="bud_2", id="bud_2/4"),
        messages.Pause(Stamp(3_000), "by-hand", "lunch"),
        resume(budget=""),
        TimeReached(Stamp(9_006_000)),
    )
    assert replayed(log, PROGRAM) == (digest_of(log), None)

    _, excused = lived(start(), pause(), resume(), report("a", at_ms=9_000_100))
    assert replayed(excused, PROGRAM) == (digest_of(excused), None)


def test_a_step_that_was_excused_while_nobody_could_be_heard_replays():
    _, log = lived(start(), TimeReached(Stamp(6_000, hears=False)), report("a", at_ms=7_000))

    assert replayed(log, PROGRAM) == (digest_of(log), None)


def test_what_a_person_paused_is_theirs_and_another_budget_takes_over_from_the_first():
    held, _ = lived(start(), pause(), report("a"))
    taken_over, _ = lived(start(), pause(), report("a"), pause(budget="bud_2", id="x"))
    by_hand, _ = lived(start(), pause(), report("a"), messages.Pause(Stamp(3_000), "y", "lunch"))

    assert (held.held_by, taken_over.held_by, by_hand.held_by) == ("bud_1", "bud_2", "")
    assert held.held == taken_over.held == by_hand.held, "what the program has not heard yet is kept"
    assert held.paused_at_ms == by_hand.paused_at_ms, "it stands still since the first"
    assert decide(by_hand, resume(), PROGRAM).events == ()
    assert decide(by_hand, pause(id="z"), PROGRAM).events == ()
    running = decide(by_hand, messages.Resume(Stamp(4_000), "r"), PROGRAM).state
    assert (running.status, running.held_by) == (Status.RUNNING, "")
