"""Another execution with the beginning of one: what it keeps, what it does again, and what may be changed there."""

import pytest

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.step import StepFault
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.execution import messages as m
from agentflow.execution.events import ForkOf, Queued
from agentflow.execution.fork import NoSuchPlace, Written, kept_after, kept_before
from agentflow.execution.messages import Stamp
from agentflow.execution.program import AskHuman, AwaitSignal, Finish, Remember, StartChild, StartTimer
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId
from tests.unit.agentflow.execution.scripted import Run, Script, UndoingScript, sent, step, types


def forked(original: Run, kept, path: str, going="from", *, now=60_000, **how) -> Run:
    run = Run.__new__(Run)
    run.program, run.state, run.log, run.now, run._requests = original.program, ExecutionState(), [], now, 0
    edited = tuple(name for name in ("input", "vars") if name in how) + how.pop("edited", ())
    of = ForkOf(ExecutionId("exec_1"), kept.version, StepPath(path), going, edited)
    run.give(
        m.Fork(Stamp(now), ExecutionId("exec_2"), TenantId("t"), TraceId("y"), "fork", of, kept, **how)
    )  # fmt: skip
    return run


def from_step(original: Run, path: str, **how) -> Run:
    return forked(original, kept_before(original.log, StepPath(path)), path, **how)


def after_step(original: Run, path: str, written: Written | None = None, **how) -> Run:
    kept = kept_after(original.log, StepPath(path), written)
    return forked(original, kept, path, "after", edited=("output",) if written else (), **how)


def three_steps() -> Run:
    """`a`, then `b` with a mark in memory, then `c`; and the output is what `c` answered."""

    def then(key, mark):
        return lambda run, outcome: (Remember({mark: outcome.output}), step(key, input=run.vars.get("limit")))

    run = Run(Script((step("a"),), a=then("b", "after_a"), b=then("c", "after_b")), timeout_ms=50_000)
    run.report("a", "A")
    run.report("b", "B")
    run.report("c", "C")
    assert run.state.status is Status.COMPLETED
    return run


def test_a_fork_from_a_step_has_everything_before_it_and_runs_it_again():
    original = three_steps()
    before = list(original.log)

    fork = from_step(original, "b")

    assert sent(fork.last) == ["DispatchStep b"]
    assert (fork.state.execution, fork.state.trace, fork.state.started_at_ms) == ("exec_2", "y", 60_000)
    assert dict(fork.state.outputs.items()) == {"a": "A"}
    assert dict(fork.state.memory.items()) == {"after_a": "A"}
    assert (fork.state.in_flight["b"].attempt, fork.state.deadline_ms) == (2, None)
    assert fork.state.forked == ForkOf(ExecutionId("exec_1"), 5, StepPath("b"), "from")
    assert original.log == before, "the original is only read"
    fork.report("b", "B2", attempt=2)
    fork.report("c", "C2")
    assert (fork.state.status, fork.state.memory.get("after_b")) == (Status.COMPLETED, None)


def test_a_fork_after_a_step_goes_on_from_its_outcome_as_it_was_or_as_it_is_written():
    original = three_steps()

    as_it_was = after_step(original, "b")
    assert (sent(as_it_was.last), as_it_was.state.outputs["b"]) == (["DispatchStep c"], "B")

    what_if = after_step(original, "b", Written("other"))
    assert (sent(what_if.last), what_if.state.outputs["b"]) == (["DispatchStep c"], "other")
    assert what_if.state.memory["after_b"] == "other", "the program heard what was written"
    assert what_if.state.forked.edited == ("output",)


def test_variables_that_are_edited_are_seen_by_everything_that_is_decided_anew():
    fork = after_step(three_steps(), "a", vars={"limit": 7})

    assert (fork.state.vars, fork.state.in_flight["b"].input) == ({"limit": 7}, 7)
    assert [event.vars for event in fork.log if hasattr(event, "of")] == [{"limit": 7}], "it is on record"


def test_the_input_of_the_step_can_be_edited_and_is_on_record():
    fork = from_step(three_steps(), "c", input={"prompt": "shorter"})

    assert fork.state.in_flight["c"].input == {"prompt": "shorter"}
    assert fork.state.forked.edited == ("input",)


def test_an_iteration_of_a_loop_is_a_place_like_any_other():
    def again(run, outcome):
        turns = (run.memory.get("turns") or 0) + 1
        return (Remember({"turns": turns}), step("loop")) if turns < 9 else (Finish(turns),)

    original = Run(Script((step("loop"),), loop=again))
    for turn in range(1, 10):
        original.report("loop" if turn == 1 else f"loop~{turn}", turn)
    assert original.state.output == 9

    fork = from_step(original, "loop~7")

    assert (list(fork.state.in_flight), fork.state.memory["turns"]) == (["loop~7"], 6)
    for turn in (7, 8, 9):
        fork.report(f"loop~{turn}", "new", attempt=2 if turn == 7 else 1)
    assert fork.state.output == 9


def beside_open_work() -> Run:
    begin = (
        step("a"),
        step("beside"),
        StartTimer("nap", 11_000),
        StartChild("kid", "w", "*", 1),
        AskHuman("ask", {}),
        AwaitSignal("gate", "go"),
    )
    run = Run(Script(begin, a=(step("b"),), beside=(), gate=(step("opened"),), kid=()))
    run.at(3_000).report("a", "A")
    return run


def test_what_was_open_beside_it_begins_anew_and_timers_have_the_time_they_had_left():
    original = beside_open_work()
    original.report("beside", "long after")
    original.child("kid", "long after")

    fork = from_step(original, "b", now=60_000)

    assert sent(fork.last) == ["DispatchStep b", "DispatchStep beside", "StartChild kid~2", "OpenTask ask~2"]
    assert dict(fork.state.timers.items()) == {"nap": 60_000 + 11_000 - 3_000}
    assert list(fork.state.awaited) == ["gate"]
    assert all(flight.at_ms == 60_000 for flight in fork.state.in_flight.values()), "no time-out is due already"


def test_children_and_tasks_are_places_too():
    original = beside_open_work()
    original.child("kid", fault=StepFault("child_failed", "x"))
    original.answer("ask", {"approved": False})

    assert after_step(original, "kid", Written("better")).program.heard[-1].output == "better"
    assert after_step(original, "ask", Written({"approved": True})).program.heard[-1].answer == {"approved": True}
    assert "OpenTask ask~2" in sent(from_step(original, "ask").last)


def test_a_failed_step_can_be_given_the_outcome_it_should_have_had():
    original = Run(Script((step("a"),), a=lambda _, outcome: (Finish(outcome.output),)))
    original.report("a", fault=StepFault("boom", "x"))

    assert after_step(original, "a", Written("mended")).state.output == "mended"


def test_an_outcome_that_came_in_a_pause_is_told_with_the_others_that_were_held():
    original = Run(Script((step("a"), step("b")), a=(), b=(Finish("both"),)))
    original.want(m.Pause)
    original.report("a", 1)
    original.report("b", 2)

    fork = after_step(original, "b", Written(3))

    assert [heard.key for heard in fork.program.heard] == ["a", "b"]
    assert (fork.state.status, fork.state.output) == (Status.COMPLETED, "both")


def test_a_call_that_the_original_had_claimed_is_the_forks_own_to_make():
    original = Run(Script((step("pay"), step("other")), pay=(), other=(step("next"),)))
    original.give(m.ClaimStep(Stamp(1_000), StepPath("pay"), 1, WorkerId("w"), "claim"))
    original.report("other")

    fork = from_step(original, "next")

    assert "pay" in original.state.claimed
    assert (fork.state.in_flight["pay"].in_doubt, len(fork.state.claimed)) == (False, 0)


def test_a_fork_queues_where_room_is_limited_and_keeps_where_it_is_to_go_on():
    fork = from_step(three_steps(), "b", queue=Queued(workflow_max=1), timeout_ms=500)

    assert (fork.state.status, fork.last.commands) == (Status.QUEUED, ())
    begun = fork.give(m.Admitted(Stamp(70_000)))
    assert (types(begun), sent(begun)) == (["execution.begun", "step.scheduled"], ["DispatchStep b"])
    assert fork.state.deadline_ms == 70_500


def test_the_same_fork_asked_for_again_changes_nothing():
    original = three_steps()
    fork = from_step(original, "b")
    kept = kept_before(original.log, StepPath("b"))
    of = ForkOf(ExecutionId("exec_1"), kept.version, StepPath("b"), "from")

    again = m.Fork(Stamp(61_000), ExecutionId("exec_2"), TenantId("t"), TraceId("y"), "fork", of, kept)
    assert fork.give(again).events == ()


def test_a_fork_of_work_that_is_being_undone_goes_on_undoing():
    original = Run(UndoingScript((step("a"),), unwind=(step("undo"),), undo=()), timeout_ms=900)
    original.want(m.Cancel)
    original.report("undo", fault=StepFault("boom", "x"))
    assert original.state.status is Status.CANCELLED

    fork = from_step(original, "undo", timeout_ms=900)

    assert (fork.state.ending.code, fork.state.deadline_ms, list(fork.state.in_flight)) == ("cancelled", None, ["undo"])


@pytest.mark.parametrize("find", [kept_before, kept_after])
def test_a_place_where_the_original_never_was_is_refused(find):
    with pytest.raises(NoSuchPlace, match="nowhere"):
        find(three_steps().log, StepPath("nowhere"))


def test_a_step_that_has_not_ended_has_no_outcome_to_go_on_from():
    with pytest.raises(NoSuchPlace, match="no outcome"):
        kept_after(beside_open_work().log, StepPath("b"))


def left(number: int) -> WorkspaceLeft:
    return WorkspaceLeft(f"{number}" * 64, ArtifactRef("a" * 64, number), number, shelf=1)


def reported(run: Run, path: str, workspace: WorkspaceLeft, fault: StepFault | None = None):
    run.give(m.StepReported(Stamp(run.now), StepPath(path), 1, WorkerId("w"), 0, 0, path, fault, workspace))


def test_the_workspace_of_a_place_is_what_the_last_call_left_whatever_was_recorded_last():
    begin = (step("a"), step("b"), step("c"))
    original = Run(Script(begin, a=(), b=(), c=lambda run, outcome: (step("d"),)))
    reported(original, "b", left(2))
    reported(original, "a", left(1))
    assert original.state.workspace == left(2)
    reported(original, "c", left(3), StepFault("boom", "It went wrong, and left something."))
    reported(original, "d", left(4))

    assert kept_after(original.log, StepPath("a")).workspace == left(2)
    assert kept_before(original.log, StepPath("d")).workspace == left(3), "what failed has left something too"
    assert kept_before(original.log, StepPath("a")).workspace is None

    fork = forked(original, kept_before(original.log, StepPath("d")), "d", workspace=left(3))
    assert fork.state.workspace == left(3)
    reported_again = m.StepReported(Stamp(1), StepPath("d"), 2, WorkerId("w"), 0, 0, "d", None, left(9))
    fork.give(reported_again)
    assert fork.state.workspace == left(9)
    again = kept_before(fork.log, StepPath("d"))
    assert again.workspace == left(3)


def test_what_a_step_left_stays_where_its_outcome_is_written_by_hand():
    original = Run(Script((step("a"),), a=(step("b"),)))
    reported(original, "a", left(1))

    assert kept_after(original.log, StepPath("a"), Written("another")).workspace == left(1)
