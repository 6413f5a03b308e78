"""The rules of a state machine."""

# ruff: noqa: E501 - a row of a table is one line

import pytest

from agentflow.workflow.load import load
from agentflow.workflow.validate import machine_problems

HEAD = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: m, version: 1.0.0}
spec:
  planner: fsm
  fsm:
"""


def found(body: str):
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    return [(it.line, it.column, it.message, it.hint) for it in machine_problems(load(text))]


def machine(*states: str, initial: str = "a", final: str = "[end]") -> str:
    return "\n".join([f"initial_state: {initial}", f"final_states: {final}", "states:", *(f"  {it}" for it in states)])


@pytest.mark.parametrize(
    "body",
    [
        machine("a: {agent: x, on_success: end}", "end:"),
        machine("a: {agent: x, on_success: end}", "end: {agent: y}"),
        machine("a: {agent: x, max_visits: 3, transitions: [{condition: ok, to: a}, {to: end}]}", "end:"),
        machine("a: {agent: x, transitions: [{condition: ok, to: end}]}", "end:"),
        machine("a: {tool: kb.search, on_success: b, on_error: b}", "b: {agent: x, max_visits: 9, on_success: a, on_error: end}", "end:"),
        machine("end:", initial="end"),
        machine("a: {agent: x, on_success: end, on_error: bad}", "end: {agent: y, on_error: bad}", "bad:", final="[end, bad]"),
    ],
)  # fmt: skip
def test_a_sound_machine_has_no_problems(body):
    assert found(body) == []


@pytest.mark.parametrize(
    ("body", "line", "column", "message", "hint"),
    [
        (machine("a: {agent: x, on_success: end}", "end:", initial="aa"), 7, 20, "There is no state `aa`.", "Did you mean `a`?"),
        (machine("a: {agent: x, on_success: end}", "end:", final="[end, ends]"), 8, 25, "There is no state `ends`.", "Did you mean `end`?"),
        (machine("a: {agent: x, on_success: edn}", "end:"), 10, 33, "There is no state `edn`.", "Did you mean `end`?"),
        (machine("a: {agent: x, on_success: end, on_error: zzz}", "end:"), 10, 48, "There is no state `zzz`.", "Known states: a, end."),
        (machine("a: {agent: x, transitions: [{to: ned}]}", "end:"), 10, 40, "There is no state `ned`.", "Did you mean `end`?"),
        (machine("a: {agent: x, on_success: end}", "end:", "lost: {agent: x, on_success: end}"), 12, 7, "State `lost` can never be reached.", "Let a state lead to it"),
        (machine("a: {agent: x, on_success: b, on_error: end}", "b: {agent: x, on_success: b}", "end:"), 11, 7, "From state `b` no final state can be reached.", "final_states"),
        (machine("a: {agent: x, on_error: end}", "end:"), 10, 7, "State `a` has no way on.", "on_success or transitions"),
        (machine("a: {agent: x, on_success: end, transitions: [{to: end}]}", "end:"), 10, 21, "State `a` has both on_success and transitions.", "last transition"),
        (machine("a: {agent: x, on_success: end}", "end: {agent: x, on_success: a}"), 11, 23, "Final state `end` cannot go on by on_success.", "final_states"),
        (machine("a: {agent: x, on_success: end}", "end: {agent: x, transitions: [{to: a}]}"), 11, 23, "Final state `end` cannot go on by transitions.", "Remove it"),
        (machine("a: {agent: x, tool: y, on_success: end}", "end:"), 10, 21, "State `a` has both an agent and a tool.", "Keep one"),
        (machine("a: {on_success: end}", "end:"), 10, 7, "State `a` has neither an agent nor a tool.", "agent or the tool"),
        (machine("a: {agent: x, on_success: end}", "end: {input: {x: 1}}"), 11, 13, "State `end` has input but nothing to do.", "Add an agent or a tool"),
        (machine("a: {agent: x, transitions: [{to: end}, {condition: ok, to: a}]}", "end:"), 10, 35, "The transitions of `a` after this one can never be taken: it has no condition.", "make it the last"),
        (machine("a: {agent: x, on_success: end, retry: {initial: 5s, max: 1s}}", "end:"), 10, 64, "The longest delay is shorter than the first.", "Raise max"),
    ],
)  # fmt: skip
def test_each_rule_names_the_place_and_the_cure(body, line, column, message, hint):
    problems = found(body)

    assert len(problems) == 1, problems
    assert problems[0][:3] == (line, column, message)
    assert hint in problems[0][3]


def test_problems_of_different_rules_come_together():
    body = machine("a: {agent: x, tool: y, on_success: edn}", "b: {agent: x, on_success: end}", "end:")

    messages = {message for _, _, message, _ in found(body)}

    assert messages == {
        "State `a` has both an agent and a tool.",
        "There is no state `edn`.",
        "State `b` can never be reached.",
    }


def test_a_misspelt_target_is_not_also_an_unreachable_state():
    body = machine("a: {agent: x, on_success: reviw}", "review: {agent: x, on_success: end}", "end:")

    assert [message for _, _, message, _ in found(body)] == ["There is no state `reviw`."]


def test_an_incomplete_definition_is_not_blamed_for_what_it_lost():
    text = HEAD + "".join(f"    {line}\n" for line in machine("a: {agent: x}", "end:").splitlines())

    assert machine_problems(load(text), complete=False) == []
    assert machine_problems(load(text)) != []


def test_thousands_of_unknown_targets_are_judged_quickly():
    states = [f"s{number}: {{agent: x, on_success: t{number}zz}}" for number in range(1_500)]

    problems = found(machine("a: {agent: x, on_success: end}", *states, "end:"))

    assert 0 < len(problems) <= 200
