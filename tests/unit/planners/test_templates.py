"""`${…}` in the input of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions.scope import Facts, Scope
from planners.expressions.templates import compile_template

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")
NOW = Facts(
    {"n": 3, "half": 0.5, "yes": True, "text": "hi", "list": [1, "a"], "none": None}, {"field": "F"}, {}, WORKFLOW
)


def rendered(value):
    template, faults = compile_template(value, Scope())
    assert faults == []
    return template.render(NOW)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${input.n}", 3),
        ("${input.list}", [1, "a"]),
        ("${input.none}", None),
        ("${ input.n + 1 }", 4),
        ("${field}", "F"),
        ("n=${input.n}", "n=3"),
        ("${input.half} ${input.yes} ${input.text} ${input.none}", "0.5 true hi null"),
        ("all: ${input.list}", 'all: [1,"a"]'),
        ("${input.text}${input.text}", "hihi"),
        (" ${input.n}", " 3"),
        ("$${input.n}", "${input.n}"),
        ("costs $5 and $${x} and ${input.n}", "costs $5 and ${x} and 3"),
        ("$", "$"),
        ("$$", "$$"),
        ("${'}'}", "}"),
        ("${ {'a': {'b': input.n}} }", {"a": {"b": 3}}),
        ("${'${'}", "${"),
        ("plain", "plain"),
        ("", ""),
        ({"a": ["${input.n}", {"b": "x${input.n}"}], "c": 1, "d": "$${"}, {"a": [3, {"b": "x3"}], "c": 1, "d": "${"}),
        (7, 7),
        (None, None),
        ({}, {}),
        ([], []),
        (["$${"], ["${"]),
        ({"${input.n}": 1}, {"${input.n}": 1}),
    ],
)
def test_a_template_gives_its_value(written, value):
    assert rendered(written) == value


@pytest.mark.parametrize(
    ("written", "path", "offset", "message"),
    [
        ("${input.n", (), 0, "never closed"),
        ("ab ${input.n} cd ${'}'", (), 17, "never closed"),
        ("ab ${input.n} cd ${'}", (), 19, "cannot be read"),
        ("${}", (), 2, "empty"),
        ({"a": [1, "x ${input.n +}"]}, ("a", 1), 13, "ends too early"),
        ("x ${nope(1)}", (), 8, "no function `nope`"),
        ("${duration('1s')}", (), 2, "gives a duration, which JSON does not have"),
        ("${type(input.n)}", (), 2, "gives a type"),
    ],
)
def test_a_faulty_template_says_where(written, path, offset, message):
    _, faults = compile_template(written, Scope())

    assert len(faults) == 1, faults
    assert faults[0].path == path
    assert faults[0].fault.offset == offset
    assert message in faults[0].fault.message


def test_every_fault_of_a_nested_template_is_found():
    _, faults = compile_template({"a": "${x +}", "b": ["${", "${ok}"], "c": {"d": "${1 +} ${2 +}"}}, Scope())

    assert [fault.path for fault in faults] == [("a",), ("b", 0), ("c", "d"), ("c", "d")]


@pytest.mark.parametrize("written", ["${input.missing}", "x ${input.missing}", {"a": ["${input.missing}"]}])
def test_a_template_that_cannot_be_rendered_is_a_fault(written):
    result = rendered(written)

    assert isinstance(result, StepFault)
    assert "`input.missing` cannot be evaluated: there is no field `missing`." in result.message


@given(st.text(alphabet="${}'\"a.b +()[]\n\\#"))
def test_any_text_is_a_template_or_has_faults_and_rendering_never_raises(written):
    template, faults = compile_template(written, Scope())

    assert all(0 <= fault.fault.offset <= len(written) for fault in faults)
    template.render(NOW)


@given(st.text().filter(lambda text: "${" not in text))
def test_text_without_an_expression_stays_as_it_is(written):
    assert rendered(written) == written
