"""Looking back: which expressions an execution evaluated, over which values, made again from its events alone."""

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import Claim
from agentflow.execution import messages as m
from planners.tracing import evaluations
from tests.unit.planners.behavior_tree.play import definition as tree
from tests.unit.planners.machines import Machine, definition

MACHINE = definition("""\
initial_state: a
final_states: [b, c]
states:
  a:
    agent: x
    input: {who: "${input.name}"}
    transitions: [{condition: "output.n > 3", to: b}, {condition: "$.output.ok", to: c}]
  b: {agent: x}
  c: {agent: x, input: "${steps.a.output.n}"}
""")


def told(text: str, run: Machine) -> list[tuple]:
    return [
        (it.version, it.trace.expression, dict(it.trace.values), it.trace.result)
        for it in evaluations(text, run.log)
    ]  # fmt: skip


def test_every_evaluation_of_a_machine_can_be_looked_at_later():
    run = Machine(MACHINE, {"name": "mara"})
    run.report("a", {"n": 2, "ok": True})
    run.report("c", None)

    assert told(MACHINE, run) == [
        (1, "input.name", {"input.name": "mara"}, "mara"),
        (3, "output.n > 3", {"output.n": 2}, False),
        (3, "$.output.ok", {"$['output']['ok']": True}, True),
        (3, "steps.a.output.n", {"steps.a.output.n": 2}, 2),
    ]


def test_an_expression_that_could_not_be_evaluated_is_told_with_its_fault():
    run = Machine(MACHINE, {"name": "mara"})
    run.report("a", {"n": "two"})

    (*_, last) = evaluations(MACHINE, run.log)
    assert (last.trace.expression, last.trace.values) == ("output.n > 3", {"output.n": "two"})
    assert last.trace.fault is not None
    assert "`>` does not take (string, int)" in last.trace.fault.message


def test_what_was_held_in_a_pause_and_what_variables_changed_is_looked_at_when_it_was():
    text = tree(
        "selector: {memory: false, children: [{condition: 'vars.stop'}, {sequence: [{action: {agent: a}}, "
        "{condition: 'output.n == 1'}, {action: {agent: b}}]}]}",
        spec="  vars: {stop: false}\n",
    )
    run = Machine(text)
    run.want(m.Pause, "")
    run.report("tree/1/a", {"n": 1})
    run.want(m.Resume)
    run.want(m.UpdateVars, {"stop": True})

    assert run.state.status == "completed"
    assert [(text, result) for _, text, _, result in told(text, run)] == [
        ("vars.stop", False),
        ("vars.stop", False),  # once more, because the variables had just got their first values
        ("vars.stop", False),
        ("output.n == 1", True),
        ("vars.stop", False),
        ("vars.stop", True),
    ]


def test_a_value_that_lies_elsewhere_is_told_as_such():
    run = Machine(MACHINE, {"name": "mara"})
    run.report("a", {"n": 2, "ok": True})
    log = [
        msgspec.structs.replace(event, output=Claim(ArtifactRef("a" * 64, 9_999_999)))
        if hasattr(event, "output")
        else event
        for event in run.log
    ]

    *_, last = evaluations(MACHINE, log)
    assert (last.trace.expression, last.trace.values) == ("output.n > 3", {})
    assert last.trace.fault.code == "not_shown"
