"""Moving a run to another version of its workflow: what is in the way is named, and a refused run is left as it is."""

from textwrap import indent

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution import events as happened
from agentflow.execution import messages as m
from agentflow.execution.events import WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import Stamp
from agentflow.execution.moving import adoption, kinds
from agentflow.execution.replay import redecide
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import WorkflowId
from planners.kinds import compile_workflow
from tests.unit.agentflow.execution.replayed import replayed
from tests.unit.planners.machines import Machine, definition

NEXT = WorkflowRef(WorkflowId("wf_2"), "scripted", "2.0.0", "e" * 64)
ASK = """
initial_state: ask
final_states: [end]
states:
  ask: {human: {title: "Go on?"}, timeout: 10m, on_success: middle}
  middle: {wait: {signal: go}, timeout: 10m, on_success: end}
  end: {succeed: {said: "${steps.ask.output}", colour: "${vars.colour}"}}
"""
SPEC = "vars: {colour: green}\n"


def program(machine: str, spec: str = SPEC):
    return compile_workflow(definition(machine, spec)).program


def tree(nodes: str) -> str:
    head = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\n"
    return f"{head}spec:\n  planner: behavior_tree\n  timeout: 1h\n  tree:\n{indent(nodes, '    ')}"


def move(run, to, **how) -> m.Move:
    return m.Move(Stamp(run.now), "move-1", NEXT, kinds(run.state, run.program), **how)


def judged(run, to, **how):
    found = adoption(run.state, to, move(run, to, **how))
    return found.verdict, [(one.node, one.key) for one in found.misfits]


def moved(run, to, **how):
    """As the control plane does it: the other version's program decides, and goes on with it."""
    wanted, run.program = move(run, to, **how), to
    return run.give(wanted)


def parked() -> Machine:
    return Machine(ASK, {}, spec=SPEC)


@pytest.fixture(autouse=True)
def every_run_replays():
    """Each with one program; a run that was moved has two, and is replayed here."""


def test_a_run_goes_on_by_the_version_it_was_moved_to():
    run = parked()
    before = run.program
    to = program(ASK.replace("said:", "answer:"))
    assert judged(run, to) == ("compatible", [])

    decision = moved(run, to, reason="a better answer")

    (event,) = decision.events
    assert isinstance(event, happened.ExecutionMoved)
    assert (event.workflow, event.reason) == (NEXT, "a better answer")
    assert run.state.workflow == NEXT
    split = len(run.log)
    run.answer("ask", "yes")
    run.want(m.Signal, "go", None)
    assert run.state.output == {"answer": "yes", "colour": "green"}
    assert replayed(run.log[: split - 1], before)[1] is None
    assert _replayed_moved(run.log, before, to)


def _replayed_moved(log, before, after) -> bool:
    """Each decision by the program of its time, as the control plane replays it."""
    state, at = ExecutionState(), 0
    while at < len(log):
        is_after = isinstance(log[at], happened.ExecutionMoved) or state.workflow == NEXT
        again = redecide(state, log[at:], after if is_after else before)
        assert again.divergence is None, again.divergence
        for event in again.events:
            state = evolve(state, event)
        at += len(again.events)
    return True


def test_what_is_behind_a_run_does_not_matter_and_what_is_ahead_may_change():
    run = parked()
    run.answer("ask", "yes")

    without_ask = ASK.replace("initial_state: ask", "initial_state: middle").replace("${steps.ask.output}", "x")
    without_ask = "\n".join(line for line in without_ask.splitlines() if not line.startswith("  ask:"))

    assert judged(run, program(without_ask)) == ("compatible", [])


def test_a_run_that_stands_where_the_version_has_nothing_is_refused_and_left_as_it_is():
    run = parked()
    before = run.state
    gone = program(
        ASK.replace("ask:", "question:").replace("steps.ask", "steps.question").replace("e: ask", "e: question")
    )

    assert judged(run, gone) == ("refused", [("ask", ""), ("ask!", "")])
    assert moved(run, gone).events == ()
    assert run.state == before


def test_a_run_that_stands_where_something_else_stands_now_is_refused():
    run = parked()

    verdict, misfits = judged(run, program(ASK.replace('human: {title: "Go on?"}', "wait: {signal: yes}")))

    assert (verdict, misfits[0]) == ("refused", ("ask", ""))


def test_a_variable_that_may_have_another_name_must_be_mapped():
    run = parked()
    run.want(m.UpdateVars, {"colour": "red"})
    renamed = program(ASK.replace('colour: "${vars.colour}"', 'shade: "${vars.shade}"'), "vars: {shade: blue}\n")
    assert judged(run, renamed) == ("needs_mapping", [("", "vars.shade")])
    assert moved(run, renamed).events == ()

    assert judged(run, renamed, renamed={"shade": "colour"}) == ("compatible", [])
    moved(run, renamed, renamed={"shade": "colour"})

    assert run.state.vars == {"shade": "red"}


def test_a_variable_can_be_given_instead_and_a_wrong_name_is_told():
    run = parked()
    renamed = program(ASK.replace('colour: "${vars.colour}"', 'shade: "${vars.shade}"'), "vars: {shade: blue}\n")

    assert judged(run, renamed, vars={"shade": "grey"})[0] == "compatible"
    assert judged(run, renamed, renamed={"shade": "size"}) == ("needs_mapping", [("", "vars.size")])
    assert ("", "vars.hue") in judged(run, renamed, vars={"hue": 1})[1]


def test_a_variable_that_is_only_new_gets_its_first_value():
    run = parked()

    moved(run, program(ASK, "vars: {colour: green, size: 3}\n"))

    assert run.state.vars == {"colour": "green", "size": 3}


def test_a_failed_run_is_moved_to_the_version_that_mends_it_and_retried():
    broken = "initial_state: a\nfinal_states: [b]\nstates:\n  a: {agent: x, on_success: b}\n  b: {agent: y}\n"
    run = Machine(broken, {}, agents={"x": lambda _: StepFault("boom", "No.")}, spec=SPEC)
    run.work()
    assert run.state.status is Status.FAILED

    decision = moved(run, program(broken.replace("{agent: x,", "{agent: x, on_error: b,")))
    assert [type(event).__name__ for event in decision.events] == ["ExecutionMoved"]
    run.want(m.RetryFailed)
    run.work()

    assert run.state.status is Status.COMPLETED


def test_one_that_is_over_or_undoing_its_work_or_of_another_workflow_is_refused():
    run = parked()
    run.want(m.Terminate)

    assert judged(run, run.program)[0] == "refused"
    other = m.Move(Stamp(0), "x", WorkflowRef(WorkflowId("wf_3"), "other", "1.0.0", "f"))
    assert adoption(parked().state, run.program, other).verdict == "refused"


def test_a_step_under_way_with_another_tool_is_waited_for():
    run = Machine("initial_state: a\nfinal_states: [a]\nstates: {a: {tool: kb.search}}\n", {}, spec=SPEC)
    pinned = m.Move(Stamp(0), "x", WorkflowRef(WorkflowId("w"), "scripted", "2", "e", {"kb.search": "new"}))

    found = adoption(run.state, run.program, pinned)

    assert [(one.node, one.key) for one in found.misfits] == [("a", "tools.kb.search")]


def test_a_run_inside_of_a_map_is_moved_where_the_map_still_stands():
    fan = """
initial_state: each
final_states: [each]
states:
  each:
    timeout: 1h
    map: {over: [1, 2], do: {initial_state: hold, final_states: [hold], states: {hold: {wait: {signal: go}}}}}
"""
    run = Machine(fan, {}, spec=SPEC)
    assert judged(run, program(fan)) == ("compatible", [])

    verdict, misfits = judged(run, program(fan.replace("hold", "keep")))

    assert verdict == "refused"
    assert ("each/0/hold", "") in misfits


def test_a_tree_is_moved_where_its_running_nodes_still_stand():
    text = "sequence:\n  - signal: {signal: go, name: told}\n  - signal: {signal: end, name: last}\n"
    run = Machine(tree(text), {})
    assert judged(run, compile_workflow(tree(text.replace("last", "end"))).program) == ("compatible", [])

    verdict, misfits = judged(run, compile_workflow(tree(text.replace("told", "heard"))).program)
    assert (verdict, misfits) == ("refused", [("tree/told", "")])
    other_kind = text.replace("sequence", "selector")
    assert judged(run, compile_workflow(tree(other_kind)).program)[0] == "refused"
