"""Attempts that end with their worker: handed on at once, counted when lost, and not for ever."""

from agentflow import limits
from agentflow.contracts.step import WORKER_LOST, WORKER_STOPPED, StepFault
from agentflow.execution import messages as m
from agentflow.execution.events import Retry
from tests.unit.agentflow.execution.scripted import Run, Script, sent, step, types

LOST = StepFault(WORKER_LOST, "It fell silent.", retryable=True)
STOPPED = StepFault(WORKER_STOPPED, "It was stopped.", retryable=True)
UNLUCKY = StepFault("unlucky", "try again", retryable=True)


def test_a_lost_attempt_is_followed_at_once_by_the_next_and_the_late_result_is_refused():
    run = Run(Script((step("a"),)))

    lost = run.report("a", fault=LOST)

    assert types(lost) == ["step.failed", "step.scheduled"]
    assert sent(lost) == ["DispatchStep a"]
    assert run.state.in_flight["a"].attempt == 2
    assert run.report("a", output="from the dead", attempt=1).events == ()
    assert types(run.report("a", output="from the living", attempt=2)) == ["step.succeeded", "execution.completed"]


def test_lost_attempts_take_nothing_from_those_the_workflow_allows():
    retrying = step("a", retry=Retry(max_attempts=2, initial_ms=0, jitter=False))
    run = Run(Script((retrying,)))
    run.report("a", fault=LOST)
    run.report("a", fault=UNLUCKY, attempt=2)
    run.time(run.now)

    assert run.state.in_flight["a"].attempt == 3
    assert types(run.report("a", fault=UNLUCKY, attempt=3)) == ["step.failed", "execution.completed"]


def test_a_step_that_takes_its_worker_with_it_again_and_again_fails_and_says_so():
    run = Run(Script((step("a"),)))
    for attempt in range(1, limits.STEP_LOST_MAX + 1):
        run.report("a", fault=LOST, attempt=attempt)
        assert run.state.in_flight["a"].attempt == attempt + 1

    last = run.report("a", fault=LOST, attempt=limits.STEP_LOST_MAX + 1)

    assert types(last) == ["step.failed", "execution.completed"]
    assert run.program.heard[-1].fault.code == WORKER_LOST
    assert "6 workers" in run.program.heard[-1].fault.message


def test_a_worker_that_is_stopped_in_order_may_be_so_any_number_of_times():
    run = Run(Script((step("a"),)))
    for attempt in range(1, 3 * limits.STEP_LOST_MAX):
        run.report("a", fault=STOPPED, attempt=attempt)

    assert run.state.in_flight["a"].attempt == 3 * limits.STEP_LOST_MAX
    assert run.state.in_flight["a"].lost == 0


def test_during_a_pause_nothing_follows_until_the_run_goes_on():
    run = Run(Script((step("a"),)))
    run.want(m.Pause)

    assert types(run.report("a", fault=LOST)) == ["step.failed"]
    assert sent(run.want(m.Resume)) == ["DispatchStep a"]
