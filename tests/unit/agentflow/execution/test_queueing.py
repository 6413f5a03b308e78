"""An execution that may not begin yet: before its moment, or while there is no room for it."""

from agentflow.contracts.step import StepFault
from agentflow.execution import messages as m
from agentflow.execution.events import Queued
from agentflow.execution.messages import Stamp
from agentflow.execution.program import AwaitSignal, Fail
from agentflow.execution.state import ExecutionState, Status, next_wakeup
from agentflow.ids import ExecutionId, TenantId, TraceId
from tests.unit.agentflow.execution.scripted import REF, Run, Script, UndoingScript, sent, step, types

BOOM = StepFault("boom", "it broke")


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


def failed_beside_a_wait(program_of=Script, **undoing) -> Run:
    """One of at most three under way, which has failed and been asked to go on."""

    def failing(run, outcome):
        return (Fail(outcome.fault),) if outcome.fault else ()

    program = program_of((step("a"), AwaitSignal("gate", "go")), a=failing, gate=(step("b"),), **undoing)
    run = queued(Queued(workflow_max=3), timeout_ms=500, program=program)
    run.give(m.Admitted(Stamp(1_100)))
    run.report("a", fault=BOOM)
    run.now = 2_000
    run.want(m.RetryFailed, id="r")
    return run


def test_a_failed_execution_with_a_limit_waits_for_room_again_before_it_goes_on():
    run = failed_beside_a_wait()

    assert (types(run.last), run.last.commands) == (["execution.retried"], ())
    assert (run.state.status, run.state.ended, run.state.fault) == (Status.QUEUED, False, None)
    assert (next_wakeup(run.state), run.state.begun_at_ms) == (None, 2_000), "it waits behind those who came before"
    assert types(run.want(m.RetryFailed, id="r")) == []

    begun = run.give(m.Admitted(Stamp(9_000)))
    assert (types(begun), sent(begun)) == (["execution.begun", "step.scheduled"], ["DispatchStep a"])
    assert (run.state.in_flight["a"].attempt, list(run.state.awaited)) == (2, ["gate"])
    assert run.state.deadline_ms == 9_500, "waiting is not counted against its time"


def test_a_signal_that_comes_while_it_waits_again_reaches_whoever_had_waited_for_it():
    run = failed_beside_a_wait()

    assert types(run.want(m.Signal, "go", 7)) == ["signal.received"]
    begun = run.give(m.Admitted(Stamp(9_000)))

    assert types(begun) == ["execution.begun", "step.scheduled", "signal.taken", "step.scheduled"]
    assert (list(run.state.in_flight), list(run.state.awaited), run.state.kept) == (["a", "b"], [], ())


def test_who_is_cancelled_while_it_waits_again_undoes_what_it_had_done_and_waits_for_no_room():
    run = failed_beside_a_wait(UndoingScript, unwind=(step("undo"),), undo=())

    cancelled = run.want(m.Cancel)

    assert (run.state.status, sent(cancelled)) == (Status.RUNNING, ["DispatchStep undo"])
    run.report("undo")
    assert run.state.status is Status.CANCELLED


def test_whoever_is_retried_twice_has_its_own_time_each_time_and_not_that_of_its_pauses_too():
    run = failed_beside_a_wait()
    run.give(m.Admitted(Stamp(9_000)))
    run.now = 9_100
    run.want(m.Pause)
    run.now = 9_300
    run.want(m.Resume)
    run.report("a", fault=BOOM, attempt=2)
    run.now = 20_000
    run.want(m.RetryFailed)
    run.give(m.Admitted(Stamp(30_000)))

    assert run.state.deadline_ms == 30_500
