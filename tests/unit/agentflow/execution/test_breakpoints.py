"""Stopping before something begins, looking around, and going on as if nothing had been."""

from agentflow.execution import messages as m
from agentflow.execution.program import AwaitSignal, Finish, Remember, StartTimer
from agentflow.execution.state import Status
from tests.unit.agentflow.execution.scripted import Run, Script, UndoingScript, step


def script() -> Script:
    return Script((step("a"),), a=(Remember({"b": "r"}), step("b/1")), **{"b/1": (step("c"),)})


def test_an_execution_stops_before_what_has_a_breakpoint_begins_and_goes_on_from_there():
    run = Run(script())
    run.want(m.SetBreakpoints, ("b/1",))

    stopped = run.report("a", 1)

    assert stopped.state.status is Status.PAUSED
    assert (stopped.state.stopped_at, stopped.commands, list(stopped.state.memory)) == ("b/1", (), [])
    went_on = run.want(m.Resume)
    assert (went_on.state.status, went_on.state.stopped_at) == (Status.RUNNING, "")
    assert list(went_on.state.in_flight) == ["b/1"]
    assert run.report("b/1").state.status is Status.RUNNING


def test_what_a_program_begins_to_remember_can_have_a_breakpoint_too():
    run = Run(script())
    run.want(m.SetBreakpoints, ("b",))

    assert run.report("a", 1).state.stopped_at == "b"
    run.want(m.Resume)
    assert list(run.report("b/1").state.in_flight) == ["c"], "it does not stop again when that changes"


def test_breakpoints_that_are_taken_away_stop_nobody():
    run = Run(script())
    run.want(m.SetBreakpoints, ("b/1", "c"))
    run.want(m.SetBreakpoints, ("c",))

    assert run.report("a", 1).state.status is Status.RUNNING
    assert run.report("b/1").state.stopped_at == "c"
    run.want(m.SetBreakpoints, ())
    assert list(run.want(m.Resume).state.in_flight) == ["c"]


def test_from_one_breakpoint_it_goes_on_to_the_next():
    chain = Script((step("a"), AwaitSignal("s", "go")), a=(StartTimer("t", 3_000),), s=(step("b"),), t=(step("c"),))
    run = Run(chain)
    run.want(m.SetBreakpoints, ("t", "b", "c"))

    assert run.report("a").state.stopped_at == "t"
    run.want(m.Signal, "go")  # comes in the pause, and is held behind the first outcome
    assert run.want(m.Resume).state.stopped_at == "b"
    assert list(run.state.timers) == ["t"]
    assert list(run.want(m.Resume).state.in_flight) == ["b"]
    assert run.time(3_000).state.stopped_at == "c"
    assert list(run.want(m.Resume).state.in_flight) == ["b", "c"]


def test_a_stop_loses_no_other_moment_that_is_due():
    timers = Script((StartTimer("t1", 5_000), StartTimer("t2", 5_000)), t1=(step("x"),), t2=(step("y"),))
    run = Run(timers)
    run.want(m.SetBreakpoints, ("x",))

    assert run.time(6_000).state.stopped_at == "x"
    assert list(run.state.timers) == ["t2"]
    assert sorted(run.want(m.Resume).state.in_flight) == ["x", "y"]


def test_who_cancels_an_execution_that_is_stopped_is_not_stopped_again():
    run = Run(UndoingScript((step("a"),), (step("undo"),), a=(step("b"),), undo=(Finish(None),)))
    run.want(m.SetBreakpoints, ("b", "undo"))
    run.report("a", 1)

    assert list(run.want(m.Cancel, "enough").state.in_flight) == ["undo"]
    assert run.report("undo").state.status is Status.CANCELLED
