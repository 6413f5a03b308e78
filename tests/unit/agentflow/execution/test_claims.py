"""A call that must not be made twice: claimed before it is made, never made again by a guess, settled by who knows."""

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution import messages as m
from agentflow.execution.events import Retry
from agentflow.execution.messages import Stamp
from agentflow.execution.state import Status, next_wakeup, pending_commands
from agentflow.ids import StepPath, WorkerId
from agentflow.limits import STEP_LOST_MAX
from tests.unit.agentflow.execution.scripted import Run, Script, sent, step, types

LOST = StepFault("worker_lost", "It fell silent.", retryable=True)
LATE = StepFault("timeout", "No result.", retryable=True)
DOUBT = StepFault("in_doubt", "Nobody knows.")
NOT_DONE = StepFault("not_done", "It was not done.", retryable=True)
BROKEN = StepFault("tool_failed", "It broke.", retryable=True)


def begun(**retry) -> Run:
    return Run(Script((step("pay", tool="pay", retry=Retry(max_attempts=5, jitter=False, **retry)),)))


def claim(run: Run, attempt: int = 1, id: str = "c1", *, undone: bool = False):
    return run.give(m.ClaimStep(Stamp(run.now), StepPath("pay"), attempt, WorkerId("w"), id, undone))


def holder(run: Run) -> str | None:
    claimed = run.state.claimed.get("pay")
    return None if claimed is None else claimed.id


def test_a_call_is_granted_once_and_asking_again_changes_nothing():
    run = begun()

    assert types(claim(run)) == ["step.claimed"]
    assert types(claim(run)) == []
    assert types(claim(run, id="c2")) == []
    assert holder(run) == "c1"


def test_an_attempt_that_is_not_current_is_granted_nothing():
    run = begun()

    assert types(claim(run, attempt=2)) == []
    run.report("pay", {"paid": True})
    assert types(claim(run)) == []


def test_a_call_that_was_made_and_reported_leaves_no_claim():
    run = begun()
    claim(run)

    run.report("pay", {"paid": True})

    assert (run.state.status, holder(run)) == (Status.COMPLETED, None)


@pytest.mark.parametrize("fault", [LOST, LATE])
def test_an_attempt_that_ends_without_a_word_about_its_call_is_followed_by_one_that_only_asks(fault):
    run = begun()
    claim(run)

    after = run.report("pay", fault=fault)

    assert types(after) == ["step.failed", "step.scheduled"]
    assert after.commands[0].in_doubt
    assert types(claim(run, attempt=2, id="c2")) == [], "it may not call"
    assert pending_commands(run.state)[0].in_doubt, "also when it is sent again after a crash"


def test_without_a_claim_a_lost_attempt_is_followed_by_one_that_may_call():
    run = begun()

    after = run.report("pay", fault=LOST)

    assert not after.commands[0].in_doubt
    assert types(claim(run, attempt=2, id="c2")) == ["step.claimed"]


def in_doubt() -> Run:
    run = begun()
    claim(run)
    run.report("pay", fault=LOST)
    doubted = run.report("pay", fault=DOUBT, attempt=2)
    assert (types(doubted), doubted.commands) == (["step.in_doubt"], ())
    return run


def test_a_step_in_doubt_waits_for_a_person_for_ever_and_is_sent_to_nobody():
    run = in_doubt()

    assert (run.state.status, next_wakeup(run.state), pending_commands(run.state)) == (Status.RUNNING, None, ())
    assert types(run.time(10**12)) == []


def test_a_person_says_that_it_was_done_and_the_run_goes_on_with_what_they_give():
    run = in_doubt()

    assert types(run.answer("pay", {"resolution": "done", "output": {"paid": 7}})) == [
        "step.settled",
        "execution.completed",
    ]
    assert run.state.outputs["pay"] == {"paid": 7}
    assert (holder(run), len(run.state.doubts)) == (None, 0)


def test_a_person_says_that_it_failed_and_the_program_hears_it():
    run = in_doubt()

    run.answer("pay", {"resolution": "fail", "reason": "bank says no"})

    assert run.program.heard[0].fault == StepFault("in_doubt", "bank says no")


def test_a_person_says_that_it_was_not_done_and_it_may_be_called_once_more():
    run = in_doubt()

    again = run.answer("pay", {"resolution": "retry"})

    assert (types(again), again.commands[0].attempt, again.commands[0].in_doubt) == (
        ["step.settled", "step.scheduled"], 3, False,
    )  # fmt: skip
    assert types(claim(run, attempt=3, id="c3")) == ["step.claimed"]


@pytest.mark.parametrize("answer", [None, "yes", {}, {"resolution": "perhaps"}])
def test_an_answer_that_says_nothing_changes_nothing(answer):
    run = in_doubt()

    assert types(run.answer("pay", answer)) == []


def test_the_lost_result_of_the_one_call_settles_the_doubt_when_it_turns_up():
    run = in_doubt()

    assert types(run.report("pay", {"paid": True}, attempt=1)) == ["step.succeeded", "execution.completed"]


def test_it_settles_the_doubt_also_while_somebody_is_still_asked():
    run = begun()
    claim(run)
    run.report("pay", fault=LOST)

    assert types(run.report("pay", {"paid": True}, attempt=1)) == ["step.succeeded", "execution.completed"]
    assert types(run.report("pay", fault=DOUBT, attempt=2)) == []


def test_a_late_failure_and_the_result_of_another_attempt_settle_nothing():
    run = in_doubt()

    assert types(run.report("pay", fault=BROKEN, attempt=1)) == []
    assert types(run.report("pay", {"paid": True}, attempt=2)) == []


def test_a_tool_that_looked_and_found_it_not_done_is_called_by_the_next_attempt():
    run = begun()
    claim(run)
    run.report("pay", fault=LOST)

    after = run.report("pay", fault=NOT_DONE, attempt=2)

    assert types(after) == ["step.failed", "step.scheduled"]
    assert not after.commands[0].in_doubt
    assert types(claim(run, attempt=3, id="c3")) == ["step.claimed"]


def test_a_failure_that_is_known_is_never_tried_again_whatever_the_rule_says():
    run = begun()
    claim(run)

    failed = run.report("pay", fault=BROKEN)

    assert types(failed)[0] == "step.failed"
    assert failed.events[0].retry_at_ms is None
    assert run.program.heard[0].fault.code == "tool_failed"


def test_a_transactional_call_that_failed_left_nothing_and_is_tried_again_by_its_rule():
    run = begun()
    claim(run, undone=True)

    failed = run.report("pay", fault=BROKEN)
    assert failed.events[0].retry_at_ms is not None
    again = run.time(failed.events[0].retry_at_ms)

    assert sent(again) == ["DispatchStep pay"]
    assert not again.commands[0].in_doubt
    assert types(claim(run, attempt=2, id="c2", undone=True)) == ["step.claimed"]


def test_a_transactional_call_whose_result_was_lost_is_in_doubt():
    run = begun()
    claim(run, undone=True)

    assert run.report("pay", fault=LOST).commands[0].in_doubt


def test_workers_that_die_while_looking_leave_it_to_a_person_in_the_end():
    run = begun()
    claim(run)
    for attempt in range(1, STEP_LOST_MAX + 1):
        assert types(run.report("pay", fault=LOST, attempt=attempt)) == ["step.failed", "step.scheduled"]

    assert types(run.report("pay", fault=LOST, attempt=STEP_LOST_MAX + 1)) == ["step.in_doubt"]


def test_a_run_that_is_cancelled_takes_its_doubts_with_it():
    run = in_doubt()

    run.want(m.Cancel)

    assert (run.state.status, len(run.state.doubts)) == (Status.CANCELLED, 0)
