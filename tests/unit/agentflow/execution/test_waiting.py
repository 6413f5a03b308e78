"""What a program may wait for besides steps: timers, signals, children and people. And how it gives things up."""

import pytest

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.errors import Bug
from agentflow.execution import messages as m
from agentflow.execution.program import (
    AskHuman,
    AwaitSignal,
    Fail,
    Finish,
    Halt,
    Remember,
    SignalReceived,
    StartChild,
    StartTimer,
)
from agentflow.execution.state import Status, next_wakeup, pending_commands
from tests.unit.agentflow.execution.scripted import Run, Script, sent, step, types

CHILD = StartChild("pay", "payment", "^1.2", {"n": 1})
TASK = AskHuman("approve", {"title": "May I?"})


def test_a_timer_fires_when_its_moment_comes_and_not_before():
    run = Run(Script((StartTimer("nap", 5_000),)))

    assert next_wakeup(run.state) == 5_000
    assert run.time(4_999).events == ()
    assert types(run.time(5_000)) == ["timer.fired", "execution.completed"]


def test_a_timer_of_the_past_is_due_at_once_but_in_a_decision_of_its_own():
    run = Run(Script((StartTimer("slice", 0),)))

    assert types(run.last) == ["execution.started", "timer.started"]
    assert next_wakeup(run.state) == 0
    assert types(run.time(1_000)) == ["timer.fired", "execution.completed"]


def test_a_timer_may_be_started_again_from_its_own_firing_and_fires_once_a_message():
    run = Run(Script((StartTimer("tick", 1),), tick=lambda run, outcome: (StartTimer("tick", 1),)))

    assert [types(run.time(10)) for _ in range(3)] == [["timer.fired", "timer.started"]] * 3


def test_a_signal_reaches_whoever_waits_for_its_name():
    run = Run(Script((AwaitSignal("gate", "go"),)))

    assert run.want(m.Signal, "other", 1).state.kept[0].name == "other"
    assert types(run.want(m.Signal, "go", {"by": "ann"})) == ["signal.received", "execution.completed"]
    assert run.program.heard == [SignalReceived("gate", {"by": "ann"})]


def test_a_signal_is_taken_once_however_often_it_arrives():
    run = Run(Script((AwaitSignal("one", "go"), AwaitSignal("two", "go")), one=(), two=(Finish(None),)))

    run.want(m.Signal, "go", id="s1")

    assert run.want(m.Signal, "go", id="s1").events == ()
    assert run.state.status is Status.RUNNING
    assert run.want(m.Signal, "go", id="s2").state.status is Status.COMPLETED


def test_signals_that_came_too_early_are_kept_and_taken_in_their_order():
    run = Run(Script((StartTimer("nap", 5_000),), nap=(AwaitSignal("a", "go"),), a=(AwaitSignal("b", "go"),)))
    run.want(m.Signal, "go", 1)
    run.want(m.Signal, "go", 2)

    decision = run.time(5_000)

    assert types(decision) == ["timer.fired", "signal.taken", "signal.taken", "execution.completed"]
    assert [outcome.payload for outcome in run.program.heard[1:]] == [1, 2]


def test_whoever_waited_first_is_served_first():
    begin = (AwaitSignal("zoe", "go"), AwaitSignal("ann", "go"))
    run = Run(Script(begin, zoe=(), ann=()))

    run.want(m.Signal, "go")

    assert [outcome.key for outcome in run.program.heard] == ["zoe"]


def test_a_kept_signal_that_the_same_answer_gives_up_again_is_not_told():
    run = Run(Script((StartTimer("nap", 2_000),), nap=(AwaitSignal("gate", "go"), Halt("gate"), step("s"))))
    run.want(m.Signal, "go")

    run.time(2_000)

    assert [outcome.key for outcome in run.program.heard] == ["nap"]


def test_a_child_is_started_sent_again_after_a_crash_and_heard_once():
    run = Run(Script((CHILD, AwaitSignal("x", "y")), pay=()))

    assert sent(run.last) == ["StartChild pay"]
    assert pending_commands(run.state) == run.last.commands
    assert types(run.child("pay", output=5)) == ["child.ended"]
    assert run.child("pay", output=6).events == ()
    assert [outcome.output for outcome in run.program.heard] == [5]
    assert pending_commands(run.state) == ()


def test_another_child_under_the_same_key_does_not_hear_of_the_first_one():
    run = Run(Script((CHILD,), pay=lambda run, outcome: (CHILD,) if outcome.fault else (Finish(outcome.output),)))

    again = run.child("pay", fault=StepFault("lost", "x"))

    assert sent(again) == ["StartChild pay~2"]
    assert run.child("pay", output="late").events == ()
    assert run.child("pay~2", output="ok").state.output == "ok"


def test_a_task_is_opened_and_answered_once():
    run = Run(Script((TASK, AwaitSignal("x", "y")), approve=()))

    assert sent(run.last) == ["OpenTask approve"]
    assert pending_commands(run.state) == run.last.commands
    assert types(run.answer("approve", {"ok": True})) == ["task.answered"]
    assert run.answer("approve", {"ok": False}).events == ()
    assert [outcome.answer for outcome in run.program.heard] == [{"ok": True}]


def test_halting_gives_up_whatever_is_open_under_the_key_and_nothing_is_heard_of_it_again():
    begin = (
        step("work"),
        CHILD,
        TASK,
        StartTimer("nap", 9_000),
        AwaitSignal("gate", "go"),
        AwaitSignal("stop", "stop"),
    )
    halts = (Halt("work"), Halt("pay"), Halt("approve"), Halt("nap"), Halt("gate"), Halt("unknown"), step("last"))
    run = Run(Script(begin, stop=halts))

    decision = run.want(m.Signal, "stop")

    assert types(decision)[1:-1] == ["step.halted", "child.halted", "task.halted", "timer.halted", "signal.halted"]
    assert sent(decision) == ["CancelStep work", "CancelChild pay", "CloseTask approve", "DispatchStep last"]
    assert [command.path for command in pending_commands(run.state)] == ["last"]
    for late in (run.report("work"), run.child("pay"), run.answer("approve", 1), run.want(m.Signal, "go")):
        assert run.state.status is Status.RUNNING
        assert types(late) in ([], ["signal.received"])
    assert [outcome.key for outcome in run.program.heard] == ["stop"]


def test_a_step_between_two_attempts_can_be_halted_too():
    retrying = step("work", retry=step("x").retry.__class__(max_attempts=3, jitter=False))
    run = Run(Script((retrying, AwaitSignal("stop", "stop")), stop=(Halt("work"), StartTimer("nap", 99_000))))
    run.report("work", fault=StepFault("f", "x", retryable=True))

    decision = run.want(m.Signal, "stop")

    assert types(decision) == ["signal.received", "step.halted", "timer.started"]
    assert decision.commands == ()
    assert next_wakeup(run.state) == 99_000


def test_what_is_begun_and_given_up_in_one_answer_is_never_sent():
    run = Run(Script((step("a"), Halt("a"), step("b"))))

    assert sent(run.last) == ["DispatchStep b"]


@pytest.mark.parametrize(("last", "ending"), [(Finish(1), "completed"), (Fail(StepFault("f", "x")), "failed")])
def test_the_end_withdraws_everything_that_is_still_open(last, ending):
    run = Run(Script((step("a"), step("b"), CHILD, TASK), a=(last,)))

    decision = run.report("a")

    assert types(decision) == ["step.succeeded", f"execution.{ending}"]
    assert sent(decision) == ["CancelStep b", "CancelChild pay", "CloseTask approve"]
    assert pending_commands(run.state) == ()
    assert next_wakeup(run.state) is None


def test_memory_and_vars_record_only_what_changed():
    run = Run(Script((Remember({"a": 1, "b": 2}, vars={"n": 1}), step("s")), s=lambda run, _: _remembering(run)))

    moved = run.report("s").events[1]

    assert (moved.memory, moved.forgot, moved.vars) == ({"c": 3}, ("a",), {"m": 2})
    assert dict(run.state.memory.items()) == {"b": 2, "c": 3}
    assert run.state.vars == {"n": 1, "m": 2}


def _remembering(run):
    assert (dict(run.memory), run.vars) == ({"a": 1, "b": 2}, {"n": 1})
    return (Remember({"c": 3}, forget=("a",), vars={"m": 2}), step("t"))


@pytest.mark.parametrize(
    "twice",
    [(step("a"), step("a")), (StartTimer("a", 1),) * 2, (AwaitSignal("a", "x"),) * 2, (step("a~2"),), (CHILD, CHILD)],
)
def test_asking_twice_for_what_is_open_is_a_bug_of_the_program(twice):
    with pytest.raises(Bug):
        Run(Script(twice))


def test_an_execution_that_wants_too_much_at_once_fails_and_says_so():
    run = Run(Script(tuple(StartTimer(f"t{number}", 9_000) for number in range(limits.INTENTS_PER_ANSWER_MAX + 1))))

    assert types(run.last) == ["execution.started", "execution.failed"]
    assert run.state.fault.code == "too_much_at_once"
