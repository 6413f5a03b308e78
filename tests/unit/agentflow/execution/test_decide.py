"""The rules of one execution, one sentence each. The program here is a straight line: `a`, then `b`, then done."""

import pytest

from agentflow.contracts.step import StepFault
from agentflow.errors import Bug
from agentflow.execution.decide import Decision, decide
from agentflow.execution.draft import retry_delay_ms
from agentflow.execution.events import Retry, WorkflowRef, decode, encode, type_of
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import Stamp, Start, StepReported, TimeReached
from agentflow.execution.program import Fail, Finish, RunStep
from agentflow.execution.state import ExecutionState, Status, next_wakeup, pending_commands
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId

RETRY = Retry(max_attempts=3, initial_ms=100, multiplier=2.0, max_ms=1_000, jitter=False)


class StraightLine:
    def begin(self, run):
        return (self._step("a", run.input),)

    def advance(self, run, outcome):
        if outcome.fault is not None:
            return (Fail(outcome.fault),)
        return (self._step("b", outcome.output),) if outcome.name == "a" else (Finish(outcome.output),)

    def _step(self, name, input):
        return RunStep(name, name, AgentName("worker"), None, input, timeout_ms=5_000, retry=RETRY)


PROGRAM = StraightLine()
WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "line", "1.0.0", "d" * 64)


def start(at_ms=1_000, timeout_ms=None):
    return Start(
        Stamp(at_ms), ExecutionId("exec_1"), TenantId("default"), WORKFLOW, {"n": 1}, TraceId("t"), timeout_ms
    )  # fmt: skip


def report(path, attempt=1, at_ms=2_000, output=None, fault=None):
    return StepReported(Stamp(at_ms), StepPath(path), attempt, WorkerId("wrk_1"), 1, 2, output, fault)


def play(*messages) -> Decision:
    """The last decision of a story."""
    decision = Decision(ExecutionState())
    for message in messages:
        decision = decide(decision.state, message, PROGRAM)
    return decision


def types(decision):
    return [type_of(event) for event in decision.events]


UNLUCKY = StepFault("unlucky", "try again", retryable=True)
HOPELESS = StepFault("hopeless", "do not", retryable=False)


def test_a_start_is_recorded_and_sends_the_first_step():
    decision = play(start())

    assert types(decision) == ["execution.started.v1", "step.scheduled.v1"]
    assert [(command.path, command.attempt, command.input) for command in decision.commands] == [("a", 1, {"n": 1})]
    assert decision.state.status is Status.RUNNING


def test_a_repeated_start_changes_nothing():
    decision = play(start(), start())

    assert decision.events == ()
    assert decision.commands == ()


def test_a_success_is_recorded_together_with_the_step_that_follows():
    decision = play(start(), report("a", output={"n": 2}))

    assert types(decision) == ["step.succeeded.v1", "step.scheduled.v1"]
    assert decision.commands[0].input == {"n": 2}
    assert dict(decision.state.outputs.items()) == {"a": {"n": 2}}


def test_a_repeated_report_changes_nothing():
    decision = play(start(), report("a", output=1), report("a", output=99))

    assert decision.events == ()
    assert dict(decision.state.outputs.items()) == {"a": 1}


def test_the_last_success_ends_the_execution_with_its_output():
    decision = play(start(), report("a"), report("b", output="done"))

    assert types(decision) == ["step.succeeded.v1", "execution.completed.v1"]
    assert (decision.state.status, decision.state.output) == (Status.COMPLETED, "done")
    assert next_wakeup(decision.state) is None


def test_nothing_is_decided_once_the_story_is_over():
    over = play(start(), report("a"), report("b"))

    for late in (start(), report("a"), report("b"), TimeReached(Stamp(10**9))):
        assert decide(over.state, late, PROGRAM) == Decision(over.state)


def test_a_retryable_failure_waits_before_it_is_sent_again():
    failed = play(start(), report("a", fault=UNLUCKY))

    assert types(failed) == ["step.failed.v1"]
    assert failed.commands == ()
    assert next_wakeup(failed.state) == 2_100

    too_early = decide(failed.state, TimeReached(Stamp(2_099)), PROGRAM)
    assert too_early.events == ()

    again = decide(failed.state, TimeReached(Stamp(2_100)), PROGRAM)
    assert types(again) == ["step.scheduled.v1"]
    assert [(command.path, command.attempt) for command in again.commands] == [("a", 2)]


def test_a_report_of_an_attempt_that_was_given_up_changes_nothing():
    second = play(start(), report("a", fault=UNLUCKY), TimeReached(Stamp(2_100)))

    late = decide(second.state, report("a", attempt=1, output="late"), PROGRAM)

    assert late.events == ()
    assert types(decide(second.state, report("a", attempt=2, output="ok"), PROGRAM))[0] == "step.succeeded.v1"


def test_the_last_allowed_failure_ends_the_execution_without_another_dispatch():
    story = [start(), report("a", fault=UNLUCKY), TimeReached(Stamp(2_100))]
    story += [report("a", 2, fault=UNLUCKY), TimeReached(Stamp(9_000)), report("a", 3, fault=UNLUCKY)]

    decision = play(*story)

    assert types(decision) == ["step.failed.v1", "execution.failed.v1"]
    assert decision.commands == ()
    assert decision.state.fault == UNLUCKY


def test_a_failure_that_is_not_retryable_is_the_outcome_at_once():
    decision = play(start(), report("a", fault=HOPELESS))

    assert types(decision) == ["step.failed.v1", "execution.failed.v1"]


def test_a_step_without_a_result_in_its_time_is_tried_again():
    decision = play(start(at_ms=1_000), TimeReached(Stamp(6_000)))

    assert types(decision) == ["step.failed.v1"]
    assert decision.events[0].fault.code == "timeout"
    assert decision.state.waiting["a"].retry_at_ms == 6_100


def test_a_step_whose_time_is_over_while_nobody_can_be_heard_has_its_time_again():
    started = play(start(at_ms=1_000))

    excused = decide(started.state, TimeReached(Stamp(6_000, hears=False)), PROGRAM)

    assert types(excused) == ["step.excused.v1"]
    assert (next_wakeup(excused.state), excused.commands) == (11_000, ())
    assert decide(excused.state, TimeReached(Stamp(10_999)), PROGRAM).events == ()
    late = decide(excused.state, TimeReached(Stamp(11_000)), PROGRAM)
    assert types(late) == ["step.failed.v1"]
    assert "step.succeeded.v1" in types(decide(excused.state, report("a"), PROGRAM)), "its result is as good as ever"


def test_an_execution_past_its_own_time_fails_and_forgets_its_steps():
    decision = play(start(at_ms=1_000, timeout_ms=3_000), TimeReached(Stamp(4_000)))

    assert types(decision) == ["execution.failed.v1"]
    assert decision.state.fault.code == "execution_timeout"
    assert pending_commands(decision.state) == ()


def test_what_must_be_sent_again_after_a_crash_is_what_was_sent_and_has_no_outcome():
    decision = play(start(), report("a"))

    assert pending_commands(decision.state) == decision.commands


def test_a_state_visited_again_is_another_step_with_its_own_identity():
    class Twice(StraightLine):
        def advance(self, run, outcome):
            return (self._step("a", None),) if run.outputs["a"] != "stop" else (Finish(None),)

    first = decide(ExecutionState(), start(), Twice())
    second = decide(first.state, report("a", output="go"), Twice())

    assert [command.path for command in second.commands] == ["a~2"]
    assert decide(second.state, report("a", output="late"), Twice()).events == ()


def test_a_program_that_leaves_nothing_to_wait_for_is_our_bug_and_says_so():
    class Silent(StraightLine):
        def begin(self, run):
            return ()

    with pytest.raises(Bug):
        decide(ExecutionState(), start(), Silent())


@pytest.mark.parametrize("attempt", [1, 2, 3, 64, 65, 10_000])
def test_retry_delays_grow_to_a_cap_and_jitter_only_shortens_them(attempt):
    steady = retry_delay_ms(RETRY, attempt, chance=0.5)
    jittered = retry_delay_ms(Retry(3, 100, 2.0, 1_000, jitter=True), attempt, chance=0.5)

    assert steady == min(1_000, 100 * 2 ** min(attempt - 1, 60))
    assert jittered == steady // 2


def test_every_event_reads_back_from_its_stored_form():
    story = [start(), report("a", fault=UNLUCKY), TimeReached(Stamp(2_100)), report("a", 2), report("b", output=1.5)]
    events, state = [], ExecutionState()
    for message in story:
        decision = decide(state, message, PROGRAM)
        events += decision.events
        state = decision.state

    folded = ExecutionState()
    for event in events:
        stored = decode(encode(event))
        assert stored == event
        folded = evolve(folded, stored)
    assert folded == state
