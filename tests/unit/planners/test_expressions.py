"""Conditions: what is refused before anything runs, and what they give when it does."""

from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import Claim
from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions import engine_google
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import ANYTHING, Shape, record, shape_of

PIECES = (
    "input", ".severity", ".tags", "steps", ".classify", ".output", "a", "b", ".a", " == ", " && ", "1", "'x'",
    ".all(x, ", ".map(x, ", "x", "has(", "len(", "[", "]", "{", "}", ": ", ", ", "!", " in ", "null", "true", ".",
    "-", "error", "(", ")",
)  # fmt: skip

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")


def facts(*, given=None, output=None, outputs=None, error=None) -> Facts:
    return Facts(given, output, outputs or {}, WORKFLOW, error)


class Both:
    """The engine of the test that runs: every test here is run with each."""

    engine = engine_google


@pytest.fixture(autouse=True, params=[engine_google, engine_celpy], ids=["google", "celpy"])
def engine(request):
    Both.engine = request.param
    return request.param


def compiled(text: str, scope: Scope | None = None):
    expression, checked = compile_expression(text, scope or Scope(), Both.engine)
    assert checked.faults == ()
    return expression


def faults_of(text: str, scope: Scope | None = None):
    expression, checked = compile_expression(text, scope or Scope(), Both.engine)
    assert expression is None
    return [(fault.offset, fault.message, fault.hint) for fault in checked.faults]


@pytest.mark.parametrize(
    ("condition", "output", "holds"),
    [
        ("response.confidence >= 0.8", {"response": {"confidence": 0.9}}, True),
        ("response.confidence >= 0.8", {"response": {"confidence": 0.5}}, False),
        ("len(results.items) > 0", {"results": {"items": [1]}}, True),
        ("len(results.items) > 0", {"results": {"items": []}}, False),
        ("status in ['approved', 'completed']", {"status": "approved"}, True),
        ("status in ['approved', 'completed']", {"status": "rejected"}, False),
        ("user.role == 'admin' && urgent == true", {"user": {"role": "admin"}, "urgent": True}, True),
        ("user.role == 'admin' && urgent == true", {"user": {"role": "guest"}, "urgent": True}, False),
    ],
)
def test_the_examples_of_the_requirements_hold_as_written(condition, output, holds):
    assert compiled(condition).holds(facts(output=output)) is holds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("confidence", 0.9),
        ("output.confidence", 0.9),
        ("input.ticket", "late"),
        ("steps.classify.output.kind", "refund"),
        ("workflow.name + '@' + workflow.version", "support@1.0.0"),
        ("error.code", "timeout"),
        ("len('héé')", 3),
        ("has(input.ticket) && !has(input.other)", True),
        ("has(steps.later.output)", False),
        ("len({'a': 1})", 1),
        ("items.filter(item, item > 1).map(item, item * 2)", [4, 6]),
        ("{'a': [confidence]}", {"a": [0.9]}),
        ("1 + 2 == 3", True),
        ("input.ticket.startsWith('la')", True),
        ("type(items) == list", True),
        ("output", {"confidence": 0.9, "items": [1, 2, 3]}),
        ("steps['classify'].output.kind", "refund"),
        ("size(input)", 1),
        ("items.exists(input, input == 3)", True),
        ("input.ticket == 'late' // why: it says so", True),
        (".input.ticket == 'late' && .confidence > 0.5", True),
        (r"r'\d' + 'x'", "\\dx"),
        ("len (items) + len(items)", 6),
    ],
)
def test_every_name_in_scope_has_its_value(text, value):
    scope = Scope(steps={"classify": ANYTHING, "later": ANYTHING}, has_error=True)
    now = facts(
        given={"ticket": "late"},
        output={"confidence": 0.9, "items": [1, 2, 3]},
        outputs={"classify": {"kind": "refund"}},
        error=StepFault("timeout", "No result."),
    )

    assert compiled(text, scope).value(now) == value


@pytest.mark.parametrize(
    ("text", "output", "reason"),
    [
        ("a.b", {"a": {}}, "there is no field `b`"),
        ("a.b > 1", {"a": {}}, "there is no field `b`"),
        ("a > 1", {}, "there is no `a` in the previous step's output"),
        ("a", None, "there is no `a` in the previous step's output"),
        ("a.b", {"a": 1}, "a field is read from something that has no fields"),
        ("a.b == 1", {"a": 1}, "has no fields"),
        ("a > 1", {"a": "x"}, "`>` does not take (string, int)"),
        ("1 / a", {"a": 0}, "it divides by zero"),
        ("a > 0", {"a": 2**80}, "out of range"),
        ("a + a", {"a": 2**52}, "beyond"),
        ("a / 0.0", {"a": 1.0}, "not a number in JSON"),
        ("a.map(x, x)", {"a": list(range(301))}, "at most 300 items"),
        ("a.all(x, x >= 0)", {"a": list(range(20_000))}, "take too many operations"),
        ("a == 'x'", {"a": "\ud800"}, "cannot be evaluated"),
        ("{a: 1}", {"a": 5}, "the result is not JSON"),
        ("[a].map(x, bytes(x))", {"a": "x"}, "the result is not JSON"),
    ],
)
def test_a_failed_evaluation_is_a_fault_that_names_the_expression_and_the_reason(text, output, reason):
    fault = compiled(text).value(facts(output=output))

    assert isinstance(fault, StepFault)
    assert fault.code == "expression_error"
    assert fault.message.startswith(f"`{text}` cannot be evaluated: ")
    assert reason in fault.message
    assert not fault.retryable


@pytest.mark.parametrize("value", [1, "true", None, [True], {"a": True}])
@pytest.mark.parametrize("condition", ["a", "dyn(a)"])
def test_a_condition_that_is_neither_true_nor_false_is_a_fault(condition, value):
    result = compiled(condition).holds(facts(output={"a": value}))

    assert isinstance(result, StepFault)
    assert "neither true nor false" in result.message


def test_a_name_alone_hands_its_value_on_untouched():
    value = {"large": 2**80, "nested": [{"x": None}]}

    assert compiled("input.value").value(facts(given={"value": value})) is value


def test_an_expression_is_compiled_once_for_all_who_write_it():
    assert compiled("n > 1", Scope(steps={"a": ANYTHING})) is compiled("n > 1", Scope(steps={"b": ANYTHING}))


def test_the_same_text_is_another_expression_where_its_names_mean_something_else():
    field, local = compiled("n > 1"), compiled("n > 1", Scope(locals={"n": ANYTHING}))
    now = Facts(None, {"n": 1}, {}, WORKFLOW, locals={"n": 2})

    assert (field.holds(now), local.holds(now)) == (False, True)


def test_a_text_that_fits_one_place_is_still_refused_in_another():
    compiled("input.severity > 1", Scope(input=SEVERE))

    assert faults_of("input.severity > 1", Scope(input=record(severity=Shape("string"))))


def test_only_the_named_parts_reach_the_engine():
    # A value that the engine cannot hold, beside the one that is named, must not matter.
    now = facts(given={"wanted": 1, "beside": 2**80}, outputs={"a": {"x": 1}, "b": 2**80})

    assert (
        compiled("input.wanted == 1 && steps.a.output.x == 1", Scope(steps={"a": ANYTHING, "b": ANYTHING})).value(now)
        is True
    )


SEVERE = shape_of(
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "severity": {"type": "integer"},
            "ticket": {"type": "string"},
            "urgent": {"type": "boolean"},
            "score": {"type": "number"},
            "maybe": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "user": {"type": "object", "properties": {"role": {"type": "string"}}},
        },
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "input.severity >= 3",
        "double(input.severity) >= 2.5",
        "input.score >= 0.8 && input.score > 0",
        "input.urgent",
        "input.maybe == null || input.maybe == 'x'",
        "'vip' in input.tags",
        "input.user.role == 'admin'",
        "input.user.age > 3",
        "has(input.severity) && has(input.user.role)",
        "input['severity'] == 3",
        "input.tags.all(tag, tag.size() > 1)",
        "size(input.user) > 0",
        "input.tags.exists(input, input == 'x')",
        "len(input.ticket) > 0 && len(input.tags) > 0",
    ],
)
def test_what_fits_the_schema_compiles(text):
    compiled(text, Scope(input=SEVERE))


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ('input.severity > "a"', 15, "`>` does not take (int, string).", "Check the types"),
        ("input.severty > 1", 6, "`input` has no field `severty`.", "Did you mean `severity`?"),
        ("1 in input.tags", 2, "`in` does not take (int, list(string)).", "Check the types"),
        ("input.ticket.role == 'x'", 12, "string", ""),
        ("input.urgent + 1 == 2", 13, "`+` does not take (bool, int).", ""),
        ("input.user.role > 3", 16, "`>` does not take (string, int).", ""),
        ("has(input.sevrity)", 10, "`input` has no field `sevrity`.", "Did you mean `severity`?"),
        ("len(input.severity) > 1", 3, "`len` does not take (int).", ""),
        ("workflow.nme == 'x'", 9, "`workflow` has no field `nme`.", "Did you mean `name`?"),
        ("steps.clasify.output.x == 1", 6, "There is no step `clasify`.", "Did you mean `classify`?"),
        ("steps.classify.outptu", 15, "`steps.classify` has no field `outptu`.", "Did you mean `output`?"),
        ("steps.classify.output.level > 'x'", 28, "`>` does not take (int, string).", ""),
        ("error.code == 'x'", 0, "There is no `error` here.", "on_error"),
        ("lenght(input.tags)", 6, "There is no function `lenght`.", "Did you mean `len`?"),
        ("zzz(input.tags)", 3, "There is no function `zzz`.", "Known functions: size, len, has"),
        ("input.severity >= 2.5", 15, "`>=` does not take (int, double).", "double()"),
        ("input.ticket.startWith('x')", 22, "There is no function `startWith`.", "Did you mean `startsWith`?"),
        ("confidence >=", 13, "The expression ends too early.", "Complete it."),
        ("a = 1", 2, "`=` cannot be read.", "Use `==` to compare."),
        ("a and b", 2, "`and` is not expected here.", "&&"),
        ("x == 'open", 5, "`'open` cannot be read.", "quotes"),
        ("has(input)", 4, "`has` asks for a field", ""),
        ("", 0, "The expression is empty.", ""),
        ("  // only a comment", 0, "The expression is empty.", ""),
        ("import == 1", 0, "`import` is a reserved word.", ""),
        ("type == 'refund'", 5, "`==` does not take", "`output.type`"),
    ],
)
def test_what_is_wrong_is_found_before_it_runs(text, offset, message, hint):
    steps = {"classify": shape_of({"type": "object", "properties": {"level": {"type": "integer"}}})}

    found = faults_of(text, Scope(input=SEVERE, steps=steps))

    assert len(found) == 1, found
    assert found[0][0] == offset
    assert message in found[0][1]
    assert hint in found[0][2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("vars.count", 2),
        ("vars.count + 1", 3),
        ("has(vars.count) && !has(vars.other)", True),
        ("vars.map(key, key)", ["count"]),
        ("env.REGION", "eu"),
        ("env.REGION == 'eu' && vars.count > 1", True),
        ("item.id", 7),
        ("item.id == 7 && index == 0", True),
        ("status", "the local's"),
        ("output.status + ' and ' + status", "the field's and the local's"),
        ("field", "of the output"),
    ],
)
@pytest.mark.parametrize("mapping", [dict, MappingProxyType])
def test_variables_the_environment_and_locals_are_in_scope(text, value, mapping):
    scope = Scope(env=["REGION"], locals={"item": ANYTHING, "index": Shape("int"), "status": Shape("string")})
    now = Facts(
        None, {"field": "of the output", "status": "the field's"}, {}, WORKFLOW,
        vars=mapping({"count": 2}),
        env=mapping({"REGION": "eu"}),
        locals={"item": {"id": 7}, "index": 0, "status": "the local's"},
    )  # fmt: skip

    assert compiled(text, scope).value(now) == value


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("env.REGOIN == 'eu'", "`env` has no field `REGOIN`.", "Did you mean `REGION`?"),
        ("env.REGION > 3", "`>` does not take (string, int).", ""),
        ("vars.cuont == 1", "`vars` has no field `cuont`.", "Did you mean `count`?"),
        ("idx > 1", "The previous step's output has no field `idx`.", "Did you mean `index`?"),
        ("index == 'x'", "`==` does not take (int, string).", ""),
    ],
)
def test_what_is_known_of_variables_environment_and_locals_is_checked(text, message, hint):
    scope = Scope(
        output=record(), vars=record(count=Shape("int")), env=["REGION"], locals={"index": Shape("int")}
    )  # fmt: skip

    ((_, found, said),) = faults_of(text, scope)

    assert found == message
    assert hint in said


def test_an_environment_whose_names_are_not_known_may_hold_any():
    assert isinstance(compiled("env.ANY == 'x'").holds(facts()), StepFault)
    assert compiled("env.ANY == 'x'").holds(Facts(None, None, {}, WORKFLOW, env={"ANY": "x"})) is True


def test_several_faults_are_found_at_once():
    found = faults_of("input.severty > 1 && input.urgent + 1 == nope(2)", Scope(input=SEVERE))

    assert [message for _, message, _ in found] == [
        "`input` has no field `severty`.",
        "`+` does not take (bool, int).",
        "There is no function `nope`.",
    ]


def test_a_closed_output_knows_all_its_fields():
    output = shape_of(
        {"type": "object", "additionalProperties": False, "properties": {"confidence": {"type": "number"}}}
    )

    compiled("confidence > 0.5 && output.confidence < 1.0", Scope(output=output))
    ((offset, message, hint),) = faults_of("1 < confidnce", Scope(output=output))

    assert (offset, message, hint) == (
        4,
        "The previous step's output has no field `confidnce`.",
        "Did you mean `confidence`?",
    )


def test_an_open_output_may_have_any_field_and_still_types_the_known_ones():
    output = shape_of({"type": "object", "properties": {"count": {"type": "integer"}}})

    compiled("count > 1 && other.thing == 2", Scope(output=output))
    assert faults_of("count == 'x'", Scope(output=output))[0][1] == "`==` does not take (int, string)."


def test_where_no_step_comes_before_a_bare_name_is_sent_to_the_input():
    scope = Scope(input=SEVERE, output=None)

    ((_, message, hint),) = faults_of("ticket == 'x'", scope)

    assert message == "There is no `ticket` here: no step comes before."
    assert hint == "Did you mean `input.ticket`?"


def test_a_name_that_a_macro_hides_is_not_mistaken_for_the_input():
    compiled("output.rows.all(input, input.anything == 1)", Scope(input=SEVERE))


def test_a_name_may_be_hidden_in_one_place_and_a_field_in_another():
    expression = compiled("rows.all(x, x > 0) && x == 'field'")

    assert expression.holds(facts(output={"rows": [1], "x": "field"})) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a == '" + "x" * 5_000 + "'", "4096 are allowed"),
        ("a.all(x, a.all(y, a.all(z, x + y + z > 0)))", "nested more than 2 deep"),
        ("[a]" + ".map(x, x)" * 5 + " == a", "more than 4 macros"),
        ("+".join(["a"] * 18), "more than 16 additions"),
        ("(" * 100 + "a" + ")" * 100, "nested too deeply"),
        ("[" * 100 + "a" + "]" * 100, "nested too deeply"),
        ("a" + ".b" * 100, "nested too deeply"),
        ("a" + "[0]" * 100, "nested too deeply"),
        (r"r'\' == b || a.all(x, a.all(y, a.all(z, x == r'\'))) ", "nested more than 2 deep"),
        ("a ? 1 : " * 100 + "1", "nested too deeply"),
    ],
)
def test_a_hostile_expression_is_refused(text, message):
    assert any(message in said for _, said, _ in faults_of(text))


def test_a_long_expression_is_cut_short_in_its_fault():
    fault = compiled("missing == '" + "x" * 1_000 + "'").value(facts(output={}))

    assert len(fault.message) < 400


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(alphabet="ab.,()[]{}'\"\\r+-<=!&|?:1 \n`/", max_size=40)
    | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
)
def test_any_text_is_an_expression_or_has_faults_and_nothing_is_raised(text):
    expression, checked = compile_expression(text, Scope(input=SEVERE, steps={"classify": ANYTHING}), Both.engine)

    assert (expression is None) == bool(checked.faults)
    assert all(0 <= fault.offset <= len(text) for fault in checked.faults)
    if expression is not None:
        expression.value(facts(given={"severity": 3, "tags": ["x"]}, output={"a": [1], "b": {"a": 1}}))
        expression.holds(facts())


BIG = [{"id": 1, "tags": ["x"]}, {"id": 2, "tags": []}]


def claimed() -> Claim:
    """A large value that travels beside the facts."""
    return Claim(ArtifactRef("a" * 64, 1_000_000))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.big.exists(row, row.id == 2)", True),
        ("size(input.big)", 2),
        ("input.big[0].id", 1),
        ("$.input.big[?@.id == 2].id", [2]),
        ("$.input.big[-1].id", 2),
        ("$.input..id", [1, 2]),
        ("$.input[?@ == $.input.big]", [BIG]),
        ("$.input.big", BIG),
        ("$.input.big[?length($.input.big) == 2 && count(@.tags[*]) == 1].id", [1]),
    ],
)
def test_a_value_that_is_claimed_is_looked_into_where_an_expression_reads_it(text, value):
    claim = claimed()
    claim.lend(BIG)

    assert compiled(text).value(facts(given={"big": claim})) == value


@pytest.mark.parametrize("text", ["size(input.big) > 1", "$.input.big[0]", "input.big[0].id == 1 && input.n == 1"])
def test_a_claimed_value_that_is_gone_is_a_fault(text):
    claim = claimed()
    claim.lose("It was deleted.")

    result = compiled(text).value(facts(given={"big": claim, "n": 1}))

    assert isinstance(result, StepFault)
    assert result.code == "artifact_lost"
    assert "It was deleted." in result.message
