"""The compiled state machine: where it goes, and what it asks for there."""

import random
from typing import Any

import pytest

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.decide import decide
from agentflow.execution.events import Retry, StepScheduled, WorkflowRef
from agentflow.execution.messages import Stamp, Start, StepReported, TimeReached
from agentflow.execution.program import Fail, Finish, RunStep, RunView, StepOutcome
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import DEFAULT_TENANT, ExecutionId, TraceId, WorkerId, WorkflowId
from planners.kinds import compile_workflow

REF = WorkflowRef(WorkflowId("wf_1"), "m", "1.0.0", "digest")
BOOM = StepFault("boom", "It went wrong.", retryable=True)


def program(*states: str, initial: str = "a", final: str = "[end]", spec: str = ""):
    head = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\nspec:\n  planner: fsm\n"
    machine = f"{spec}  fsm:\n    initial_state: {initial}\n    final_states: {final}\n    states:\n"
    return compile_workflow(head + machine + "".join(f"      {state}\n" for state in states)).program


def view(given: Any = None, **outputs: Any) -> RunView:
    return RunView(given, outputs, REF, {}, {}, at_ms=0, chance=0.5)


def test_an_execution_begins_in_the_initial_state_with_its_input_rendered():
    machine = program("a: {agent: x, input: {t: '${input.t}', v: '${workflow.version}'}, on_success: end}", "end:")

    assert machine.begin(view({"t": 5})) == (
        RunStep("a", "a", "x", None, {"t": 5, "v": "1.0.0"}, limits.STEP_TIMEOUT_MS_DEFAULT, Retry()),
    )


def test_an_expression_reads_what_the_deployment_allowed_when_the_execution_began():
    machine = program("a: {agent: x, input: {where: '${env.REGION}'}, on_success: end}", "end:")
    start = Start(
        Stamp(1), ExecutionId("exec_1"), DEFAULT_TENANT, REF, {}, TraceId("t"), env={"REGION": "eu"}
    )  # fmt: skip

    (step,) = decide(ExecutionState(), start, machine).state.in_flight.values()

    assert step.input == {"where": "eu"}


def test_a_step_without_input_gets_an_empty_object():
    (step,) = program("a: {agent: x, on_success: end}", "end:").begin(view())

    assert step.input == {}


def test_a_tool_without_an_agent_goes_to_the_agent_tools():
    (step,) = program("a: {tool: kb.search, on_success: end}", "end:").begin(view())

    assert (step.agent, step.tool) == ("tools", "kb.search")


@pytest.mark.parametrize(
    ("written", "retry"),
    [
        ("{}", Retry(max_attempts=3)),
        ("{max_attempts: 5, initial: 1s, multiplier: 3, max: 1m, jitter: none}", Retry(5, 1_000, 3.0, 60_000, False)),
        ("{initial: 5m}", Retry(max_attempts=3, initial_ms=300_000, max_ms=300_000)),
    ],
)
def test_timeout_and_retry_are_those_of_the_state(written, retry):
    (step,) = program(f"a: {{agent: x, timeout: 20s, retry: {written}, on_success: end}}", "end:").begin(view())

    assert step.timeout_ms == 20_000
    assert step.retry == retry


def test_success_leads_on_and_the_next_input_sees_the_output_before_it():
    machine = program(
        "a: {agent: x, on_success: b}", "b: {agent: y, input: '${n} of ${output.total}', on_success: end}", "end:"
    )

    (step,) = machine.advance(view(a={"n": 1, "total": 2}), StepOutcome("a", "a", {"n": 1, "total": 2}))

    assert (step.name, step.input) == ("b", "1 of 2")


@pytest.mark.parametrize(("score", "target"), [(9, "high"), (5, "middle"), (1, "low")])
def test_the_first_transition_that_holds_is_taken(score, target):
    ways = "[{condition: score > 8, to: high}, {condition: 'score > 3', to: middle}, {to: low}]"
    ends = [f"{name}: {{agent: x, on_success: end}}" for name in ("high", "middle", "low")]

    (step,) = program(f"a: {{agent: x, transitions: {ways}}}", *ends, "end:").advance(
        view(), StepOutcome("a", "a", {"score": score})
    )

    assert step.name == target


def test_no_transition_that_holds_is_a_fault_of_the_state():
    machine = program("a: {agent: x, transitions: [{condition: ok, to: end}]}", "end:")

    (fail,) = machine.advance(view(), StepOutcome("a", "a", {"ok": False}))

    assert fail == Fail(StepFault("no_transition", "State `a` failed: No condition of its transitions holds."))


def test_a_fault_without_on_error_fails_the_execution_and_names_the_state():
    (fail,) = program("a: {agent: x, on_success: end}", "end:").advance(view(), StepOutcome("a", "a", fault=BOOM))

    assert fail == Fail(StepFault("boom", "State `a` failed: It went wrong."))


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (StepOutcome("a", "a", fault=BOOM), "boom"),
        (StepOutcome("a", "a", {"ok": False}), "no_transition"),
        (StepOutcome("a", "a", {"other": 1}), "expression_error"),
        (StepOutcome("a", "a", {"ok": "yes"}), "expression_error"),
    ],
)
def test_every_kind_of_fault_is_routed_by_on_error_and_seen_there(outcome, code):
    machine = program(
        "a: {agent: x, transitions: [{condition: ok, to: end}], on_error: rescue}",
        "rescue:",
        "  agent: y",
        "  input: {code: '${error.code}', why: '${error.message}', was: '${output}'}",
        "  on_success: end",
        "end:",
    )

    (step,) = machine.advance(view(), outcome)

    assert step.name == "rescue"
    assert step.input["code"] == code
    assert step.input["why"]
    assert step.input["was"] == outcome.output


def test_error_is_null_where_a_state_was_reached_without_one():
    machine = program(
        "a: {agent: x, on_success: b, on_error: b}",
        "b: {agent: y, input: {failed: '${error != null}'}, on_success: end}",
        "end:",
    )

    (well,) = machine.advance(view(), StepOutcome("a", "a", {}))
    (badly,) = machine.advance(view(), StepOutcome("a", "a", fault=BOOM))

    assert (well.input, badly.input) == ({"failed": False}, {"failed": True})


def test_an_input_that_cannot_be_made_is_a_fault_of_its_own_state():
    plain = program("a: {agent: x, input: '${input.missing}', on_success: end}", "end:")
    rescued = program(
        "a: {agent: x, input: '${input.missing}', on_success: end, on_error: b}",
        "b: {agent: y, on_success: end}",
        "end:",
    )

    (fail,) = plain.begin(view({}))
    (step,) = rescued.begin(view({}))

    assert fail.fault.code == "expression_error"
    assert "State `a` failed: `input.missing` cannot be evaluated" in fail.fault.message
    assert step.name == "b"


def test_two_states_that_hand_a_fault_back_and_forth_are_stopped():
    machine = program(
        "a: {agent: x, input: '${input.missing}', on_success: end, on_error: b}",
        "b: {agent: x, input: '${input.missing}', on_success: end, on_error: a}",
        "end:",
        spec="  timeout: 1h\n",
    )

    (fail,) = machine.begin(view({}))

    assert fail.fault.code == "no_progress"


def test_a_final_state_without_a_step_ends_with_the_output_before_it():
    machine = program("a: {agent: x, on_success: end, on_error: end}", "end:")

    assert machine.advance(view(), StepOutcome("a", "a", {"n": 1})) == (Finish({"n": 1}),)
    assert machine.advance(view(), StepOutcome("a", "a", fault=BOOM)) == (Finish(None),)


def test_a_final_state_with_a_step_ends_with_its_own_output():
    machine = program("a: {agent: x, on_success: end}", "end: {agent: y, input: '${n}'}")

    (step,) = machine.advance(view(), StepOutcome("a", "a", {"n": 1}))

    assert (step.name, step.input) == ("end", 1)
    assert machine.advance(view(), StepOutcome("end", "end", "done")) == (Finish("done"),)


def test_the_outcome_of_a_state_that_does_not_exist_fails_instead_of_raising():
    (fail,) = program("a: {agent: x, on_success: end}", "end:").advance(view(), StepOutcome("ghost", "ghost", 1))

    assert fail.fault.code == "unknown_state"


SUPPORT = (
    "classify:",
    "  agent: classifier",
    "  input: ${input.ticket}",
    "  retry: {max_attempts: 2, initial: 1s, jitter: none}",
    "  transitions: [{condition: confidence >= 0.8, to: search}, {to: escalate}]",
    "  on_error: escalate",
    "search: {tool: kb.search, input: {query: '${input.ticket}', kind: '${kind}'}, on_success: respond}",
    "respond: {agent: writer, input: {found: '${items}', kind: '${steps.classify.output.kind}'}}",
    "escalate:",
)


def reported(
    at_ms: int, path: str, attempt: int = 1, output: Any = None, fault: StepFault | None = None
) -> StepReported:
    return StepReported(Stamp(at_ms), path, attempt, WorkerId("wrk_1"), at_ms, at_ms, output, fault)


def started(machine) -> ExecutionState:
    start = Start(Stamp(0), ExecutionId("exec_1"), DEFAULT_TENANT, REF, {"ticket": "late"}, TraceId("t"))
    return decide(ExecutionState(), start, machine).state


def test_the_heart_drives_a_compiled_machine_to_its_end():
    machine = program(*SUPPORT, initial="classify", final="[respond, escalate]")
    state = started(machine)

    state = decide(state, reported(10, "classify", output={"confidence": 0.9, "kind": "refund"}), machine).state
    search = decide(state, reported(20, "search", output={"items": ["a"]}), machine)
    (dispatched,) = search.commands
    ended = decide(search.state, reported(30, "respond", output="Dear customer"), machine).state

    assert (dispatched.name, dispatched.input) == ("respond", {"found": ["a"], "kind": "refund"})
    assert (ended.status, ended.output) == (Status.COMPLETED, "Dear customer")


def test_the_heart_retries_a_step_before_the_machine_hears_of_its_failure():
    machine = program(*SUPPORT, initial="classify", final="[respond, escalate]")

    state = decide(started(machine), reported(10, "classify", fault=BOOM), machine).state
    again = decide(state, TimeReached(Stamp(1_010)), machine)
    ended = decide(again.state, reported(1_020, "classify", attempt=2, fault=BOOM), machine).state

    assert state.status is Status.RUNNING
    assert [command.attempt for command in again.commands] == [2]
    assert (ended.status, ended.output) == (Status.COMPLETED, None)


@pytest.mark.parametrize("seed", range(40))
def test_random_machines_end_and_never_ask_for_a_state_they_do_not_have(seed):
    chance = random.Random(seed)
    names = [f"s{number}" for number in range(chance.randint(1, 12))]
    states = [_random_state(chance, name, names) for name in names]
    machine = program(*states, "end: {agent: last}", "bare:", initial="s0", final="[end, bare]", spec="  timeout: 1h\n")
    state, steps = started(machine), 0

    while not state.ended and steps < 2_000:
        (path, flight) = next(iter(state.in_flight.items()))
        assert flight.name in {*names, "end"}
        outcome = (
            {"fault": StepFault("boom", "x")} if chance.random() < 0.2 else {"output": {"n": chance.randint(0, 9)}}
        )
        state = decide(state, reported(steps, path, **outcome), machine).state
        steps += 1

    assert state.ended


def _random_state(chance: random.Random, name: str, names: list[str]) -> str:
    """A state that may go back, but always has some way towards an end."""
    later = [*names[names.index(name) + 1 :], "end", "bare"]
    ways = [
        f"{{condition: 'n > {chance.randint(3, 9)}', to: {chance.choice(names)}}}" for _ in range(chance.randint(0, 2))
    ]
    following = names[names.index(name) + 1] if name != names[-1] else "bare"
    on_error = f", on_error: {chance.choice(later)}" if chance.random() < 0.5 else ""
    given = chance.choice(["'${input.ticket}'", "{a: '${input.missing}'}", "'x ${has(input.ticket)}'"])
    end = "{condition: 'n == 1', to: end}"
    return (
        f"{name}: {{agent: x, input: {given}{on_error}, transitions: [{', '.join([*ways, end])}, {{to: {following}}}]}}"
    )


def test_the_same_view_and_outcome_always_give_the_same_intents():
    machine = program(*SUPPORT, initial="classify", final="[respond, escalate]")
    outcome = StepOutcome("classify", "classify", {"confidence": 0.9, "kind": "k"})

    answers = [machine.advance(view({"ticket": "t"}), outcome) for _ in range(5)]

    assert answers == [answers[0]] * 5


def test_a_step_that_is_scheduled_carries_what_the_program_asked_for():
    machine = program("a: {tool: kb.search, timeout: 3s, on_success: end}", "end:")

    state = started(machine)

    (flight,) = state.in_flight.values()
    assert isinstance(flight, StepScheduled)
    assert (flight.agent, flight.tool, flight.timeout_ms) == ("tools", "kb.search", 3_000)
