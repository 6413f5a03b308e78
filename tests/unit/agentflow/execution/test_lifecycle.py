"""Pause, resume, cancel, terminate, change, retry: what people may do to a run, each at most once by its id."""

from agentflow.contracts.step import StepFault
from agentflow.execution import messages as m
from agentflow.execution.events import Retry
from agentflow.execution.program import AskHuman, AwaitSignal, Fail, Finish, Halt, Remember, StartChild, StartTimer
from agentflow.execution.state import Status, next_wakeup, pending_commands
from tests.unit.agentflow.execution.scripted import Run, Script, UndoingScript, sent, step, types

BOOM = StepFault("boom", "It went wrong.")
UNLUCKY = StepFault("unlucky", "try again", retryable=True)


def test_a_paused_run_records_what_ends_but_begins_nothing():
    run = Run(Script((step("a"),), a=(step("b"),)))
    run.want(m.Pause, "look at it")

    ended = run.report("a", output=7)

    assert types(ended) == ["step.succeeded"]
    assert ended.commands == ()
    assert (run.state.status, next_wakeup(run.state), run.program.heard) == (Status.PAUSED, None, [])
    resumed = run.want(m.Resume)
    assert types(resumed) == ["execution.resumed", "step.scheduled"]
    assert sent(resumed) == ["DispatchStep b"]


def test_everything_that_ended_during_a_pause_is_told_in_its_order():
    begin = (step("a"), step("b"), AwaitSignal("gate", "go"), StartChild("kid", "w", "*", 1), AskHuman("ask", {}))
    run = Run(Script(begin, a=(), b=(), gate=(), kid=()))
    run.want(m.Pause)
    run.report("b")
    run.want(m.Signal, "go", 1)
    run.child("kid", fault=BOOM)
    run.report("a", fault=BOOM)
    run.answer("ask", "yes")

    run.want(m.Resume)

    assert [outcome.key for outcome in run.program.heard] == ["b", "gate", "kid", "a", "ask"]
    assert [getattr(outcome, "fault", None) for outcome in run.program.heard] == [None, None, BOOM, BOOM, None]


def test_what_the_program_gives_up_on_resume_is_not_told_although_it_had_ended():
    run = Run(Script((step("a"), step("b")), a=(Halt("b"), step("c"))))
    run.want(m.Pause)
    run.report("a")
    run.report("b")

    run.want(m.Resume)

    assert [outcome.key for outcome in run.program.heard] == ["a"]


def test_timers_timeouts_and_retries_that_fell_into_a_pause_come_with_the_resume():
    retrying = step("a", retry=Retry(max_attempts=2, initial_ms=10, jitter=False))
    run = Run(Script((retrying, step("b"), StartTimer("nap", 3_000)), nap=()))
    run.report("a", fault=UNLUCKY)
    run.want(m.Pause)

    assert run.time(50_000).events == ()
    assert types(run.want(m.Resume))[:4] == ["execution.resumed", "step.scheduled", "timer.fired", "step.failed"]


def test_a_pause_does_not_count_against_the_runs_own_time():
    run = Run(Script((step("a", timeout_ms=900_000),)), timeout_ms=10_000)
    run.at(3_000).want(m.Pause)
    run.at(60_000).want(m.Resume)

    assert run.state.deadline_ms == 11_000 + 57_000


def test_a_repeated_request_changes_nothing_even_if_it_comes_late():
    run = Run(Script((step("a"),)))
    run.want(m.Pause, id="p1")
    run.want(m.Resume, id="r1")

    assert run.want(m.Pause, id="p1").events == ()
    assert run.want(m.Resume, id="r1").events == ()
    assert run.state.status is Status.RUNNING


def test_pausing_a_paused_run_and_resuming_a_running_one_change_nothing():
    run = Run(Script((step("a"),)))

    assert run.want(m.Resume).events == ()
    run.want(m.Pause)
    assert run.want(m.Pause).events == ()


def test_a_cancelled_run_halts_all_that_is_open_and_ends():
    run = Run(Script((step("a"), StartTimer("nap", 9_000), StartChild("kid", "w", "*", 1))))

    decision = run.want(m.Cancel, "no longer needed")

    assert types(decision)[-1] == "execution.cancelled"
    assert sent(decision) == ["CancelStep a", "CancelChild kid"]
    assert (run.state.status, run.state.fault) == (Status.CANCELLED, StepFault("cancelled", "no longer needed"))
    assert pending_commands(run.state) == ()
    assert run.report("a").events == ()


def test_a_program_that_can_undo_its_work_does_so_before_a_cancelled_run_ends():
    run = Run(UndoingScript((step("a"),), (Remember({"undoing": 1}), step("undo")), a=(step("b"),)))
    run.report("a")

    decision = run.want(m.Cancel, "why")

    assert types(decision) == ["execution.cancel_requested", "step.halted", "program.moved", "step.scheduled"]
    assert run.state.status is Status.RUNNING
    assert run.want(m.Cancel, "again").events == ()
    assert types(run.report("undo")) == ["step.succeeded", "execution.cancelled"]
    assert run.state.fault == StepFault("cancelled", "why")


def test_a_program_with_nothing_to_undo_is_cancelled_at_once():
    run = Run(UndoingScript((step("a"),), ()))

    assert run.want(m.Cancel).state.status is Status.CANCELLED


def test_cancelling_a_paused_run_first_tells_the_program_what_had_ended():
    run = Run(UndoingScript((step("a"),), (step("undo"),), a=(step("b"),)))
    run.want(m.Pause)
    run.report("a")

    decision = run.want(m.Cancel)

    assert [outcome.key for outcome in run.program.heard] == ["a"]
    assert sent(decision) == ["DispatchStep undo"]


def test_a_terminated_run_ends_at_once_without_undoing():
    run = Run(UndoingScript((step("a"),), (step("undo"),)))

    decision = run.want(m.Terminate, "now")

    assert types(decision) == ["execution.terminated"]
    assert sent(decision) == ["CancelStep a"]
    assert (run.state.status, run.state.fault) == (Status.CANCELLED, StepFault("terminated", "now"))


def test_a_run_out_of_time_undoes_its_work_and_then_fails():
    run = Run(UndoingScript((step("a", timeout_ms=99_000),), (step("undo"),)), timeout_ms=500)

    decision = run.time(2_000)

    assert types(decision) == ["execution.timed_out", "step.halted", "step.scheduled"]
    assert types(run.report("undo")) == ["step.succeeded", "execution.failed"]
    assert run.state.fault.code == "execution_timeout"
    assert run.want(m.RetryFailed).events == (), "what was undone cannot be continued"


def test_vars_can_be_changed_from_outside_once_a_request():
    run = Run(Script((Remember(vars={"a": 1, "b": 1}), step("s"))))

    assert types(run.want(m.UpdateVars, {"b": 2, "c": 3}, id="u")) == ["vars.updated"]
    assert run.want(m.UpdateVars, {"b": 9}, id="u").events == ()
    assert run.state.vars == {"a": 1, "b": 2, "c": 3}


def failed_beside_open_work() -> Run:
    def failing(run, outcome):
        return (Remember({"mark": 1}), Fail(outcome.fault)) if outcome.fault else (Finish(outcome.output),)

    begin = (
        step("a", retry=Retry(max_attempts=2, jitter=False, initial_ms=1)),
        step("b"),
        StartTimer("nap", 99_000),
        StartChild("kid", "w", "*", 1),
        AskHuman("ask", {}),
        AwaitSignal("gate", "go"),
    )
    run = Run(Script(begin, a=failing, b=()))
    run.report("a", fault=UNLUCKY)
    run.time(2_000)
    run.report("a", fault=UNLUCKY, attempt=2)
    assert run.state.status is Status.FAILED
    return run


def test_a_failed_run_is_continued_from_its_failed_step_with_all_that_was_open():
    run = failed_beside_open_work()

    decision = run.want(m.RetryFailed)

    assert types(decision)[0] == "execution.retried"
    assert sent(decision) == ["DispatchStep b", "DispatchStep a", "StartChild kid~2", "OpenTask ask~2"]
    assert [(step.path, step.attempt) for step in run.state.in_flight.values()] == [("a", 3), ("b", 2)]
    assert dict(run.state.timers.items()) == {"nap": 99_000}
    assert list(run.state.awaited) == ["gate"]
    assert dict(run.state.memory.items()) == {}, "the answer that failed left no mark"
    run.report("b", attempt=2)
    assert run.report("a", "ok", attempt=3).state.output == "ok"


def test_a_retried_step_has_all_its_attempts_again_and_may_be_retried_again():
    run = failed_beside_open_work()
    run.want(m.RetryFailed)

    assert types(run.report("a", fault=UNLUCKY, attempt=3)) == ["step.failed"]
    run.time(2_100)
    run.report("a", fault=UNLUCKY, attempt=4)
    assert run.state.status is Status.FAILED
    assert run.want(m.RetryFailed).state.in_flight["a"].attempt == 5


def test_a_repeated_retry_and_a_retry_of_what_did_not_fail_change_nothing():
    run = failed_beside_open_work()
    run.want(m.RetryFailed, id="r")

    assert run.want(m.RetryFailed, id="r").events == ()
    assert run.want(m.RetryFailed, id="other").events == ()


def test_a_run_that_failed_without_a_failed_step_asks_the_program_the_same_again():
    def by_vars(run, outcome):
        return (Finish("ok"),) if run.vars.get("fixed") else (Fail(StepFault("expression_error", "x")),)

    run = Run(Script((step("a"),), a=by_vars))
    run.report("a", output=1)
    assert run.state.status is Status.FAILED

    assert types(run.want(m.RetryFailed)) == ["execution.retried", "execution.failed"]
    run.want(m.UpdateVars, {"fixed": True})
    assert types(run.want(m.RetryFailed)) == ["execution.retried", "execution.completed"]


def test_a_failed_child_is_started_again_as_another_child():
    run = Run(Script((StartChild("kid", "w", "*", 1),), kid=lambda _, outcome: (Fail(outcome.fault),)))
    run.child("kid", fault=BOOM)

    assert sent(run.want(m.RetryFailed)) == ["StartChild kid~2"]


def test_a_run_out_of_time_is_continued_with_all_its_time_again():
    run = Run(Script((step("a", timeout_ms=99_000),)), timeout_ms=500)
    run.time(2_000)

    run.want(m.RetryFailed)

    assert run.state.deadline_ms == 2_500
    assert run.state.in_flight["a"].attempt == 2
