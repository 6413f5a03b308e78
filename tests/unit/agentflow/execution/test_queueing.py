"""An execution that may not begin yet: before its moment, or while there is no room for it."""

from agentflow.execution import messages as m
from agentflow.execution.events import Queued
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState, Status, next_wakeup
from agentflow.ids import ExecutionId, TenantId, TraceId
from tests.unit.agentflow.execution.scripted import REF, Run, Script, UndoingScript, sent, step, types


def queued(queue: Queued | None, *, timeout_ms: int | None = None, program=None) -> Run:
    run = Run.__new__(Run)
    run.program, run.state, run.log, run.now, run._requests = (
        program or Script((step("a"),)), ExecutionState(), [], 1_000, 0
    )  # fmt: skip
    run.give(
        m.Start(
            Stamp(1_000),
            ExecutionId("exec_1"),
            TenantId("t"),
            REF,
            {},
            TraceId("x"),
            timeout_ms,
            priority=7,
            queue=queue,
        )
    )
    return run


def test_a_delayed_execution_does_nothing_before_its_moment_and_begins_once_at_it():
    run = queued(Queued(not_before_ms=5_000))

    assert (run.state.status, next_wakeup(run.state), run.last.commands) == (Status.QUEUED, 5_000, ())
    assert types(run.time(4_999)) == []
    begun = run.time(5_000)
    assert (types(begun), sent(begun)) == (["execution.begun", "step.scheduled"], ["DispatchStep a"])
    assert types(run.time(5_001)) == []


def test_a_moment_that_has_passed_makes_no_queue():
    run = queued(Queued(not_before_ms=1_000))

    assert (run.state.status, run.state.queue) == (Status.RUNNING, None)
    assert types(run.last) == ["execution.started", "step.scheduled"]


def test_a_limited_execution_begins_when_it_is_admitted_and_not_by_time():
    run = queued(Queued(workflow_max=3))

    assert (run.state.status, next_wakeup(run.state)) == (Status.QUEUED, None)
    assert types(run.time(99_000)) == []
    assert types(run.give(m.Admitted(Stamp(99_000)))) == ["execution.begun", "step.scheduled"]
    assert types(run.give(m.Admitted(Stamp(99_001)))) == []
    assert run.state.queue == Queued(workflow_max=3)  # whoever counts must know that it leaves


def test_room_does_not_make_an_execution_begin_before_its_moment():
    run = queued(Queued(not_before_ms=5_000, of_tenant=True))

    assert types(run.give(m.Admitted(Stamp(4_000)))) == []
    assert types(run.give(m.Admitted(Stamp(5_000)))) == ["execution.begun", "step.scheduled"]


def test_the_time_spent_in_the_queue_is_not_counted_against_the_timeout():
    run = queued(Queued(not_before_ms=50_000), timeout_ms=10_000)

    assert types(run.time(20_000)) == []
    run.time(50_000)
    assert run.state.deadline_ms == 60_000
    assert types(run.time(60_000)) == ["execution.failed"] or run.state.status is Status.FAILED


def test_a_queued_execution_is_cancelled_without_undoing_what_it_never_did():
    run = queued(Queued(not_before_ms=50_000), program=UndoingScript((step("a"),), unwind=(step("undo"),)))

    gone = run.want(m.Cancel, "not needed")

    assert (types(gone), gone.commands) == (["execution.cancelled"], ())
    assert types(run.time(50_000)) == []


def test_a_signal_that_comes_early_is_kept_until_it_begins():
    run = queued(Queued(not_before_ms=5_000))

    run.want(m.Signal, "go", {"n": 1})

    assert [signal.name for signal in run.state.kept] == ["go"]
