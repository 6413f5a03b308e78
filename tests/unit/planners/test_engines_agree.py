"""The two CEL engines give the same answers, also where nobody thought of asking: generated expressions and data."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.expressions import engine_google
from planners.expressions.check import check, faults_of
from planners.expressions.engine import Failure
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.engines import check_text
from planners.expressions.scope import Scope

NAMES = ("i", "d", "s", "b", "n", "l", "m")
VARIABLES = dict.fromkeys(NAMES, "dyn")
TEXTS = st.text(alphabet="ab é😀\n", max_size=4)
NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from([0.0, -0.0, 1.5, 2.0])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3),
    max_leaves=5,
)

literals = (
    st.sampled_from(
        ["0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "1u", "0u", "18446744073709551615u", "0.5",
         "1.0", "2e3", "-0.0", "true", "false", "null", "'a'", "''", "'é'", "b'a'", "[]", "{}", "duration('1h')",
         "duration('-1.5s')", "timestamp('2026-11-18T09:30:00.25Z')", "'2026-11-18T09:30:00Z'",
         "'12'", "'1.5'", "'90m'"]
    )
)  # fmt: skip
atoms = literals | st.sampled_from(NAMES)
BINARY = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in")
UNARY = ("!", "-")
FUNCTIONS = ("size", "int", "uint", "double", "string", "bool", "bytes", "dyn", "type", "duration", "timestamp")
METHODS = (
    ".contains('a')", ".startsWith('a')", ".endsWith('')", ".size()", ".matches('^a')", "[0]", "[1]", "['a']", ".a",
    ".b",    ".getHours()", ".getMilliseconds()", ".getDayOfYear()", ".getSeconds()", "[-1]",
)  # fmt: skip
LOOPS = ("all(x, {0})", "exists(x, {0})", "exists_one(x, {0})", "filter(x, {0})", "map(x, {0})", "map(x, {0}, x)")


def grown(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda it: f"({it[0]} {it[1]} {it[2]})"),
        st.tuples(st.sampled_from(UNARY), inner).map(lambda it: f"{it[0]}({it[1]})"),
        st.tuples(inner, inner, inner).map(lambda it: f"({it[0]} ? {it[1]} : {it[2]})"),
        st.tuples(st.sampled_from(FUNCTIONS), inner).map(lambda it: f"{it[0]}({it[1]})"),
        st.tuples(inner, st.sampled_from(METHODS)).map(lambda it: f"({it[0]}){it[1]}"),
        inner.map(lambda it: f"has(({it}).a)"),
        st.tuples(inner, st.sampled_from(LOOPS), inner | st.just("x") | st.just("x == i")).map(
            lambda it: f"({it[0]})." + it[1].format(it[2])
        ),
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        st.tuples(inner, inner).map(lambda it: f"{{'k': {it[0]}, 'a': {it[1]}}}"),
        st.tuples(inner, inner).map(lambda it: f"{{{it[0]}: {it[1]}, 1: 'one', dyn(1u): 2}}"),
        st.tuples(inner, inner).map(lambda it: f"({it[0]})[{it[1]}]"),
    )


expressions = st.recursive(atoms, grown, max_leaves=6)


def same(left, right) -> bool:
    if isinstance(left, bytes | bytearray):
        return bytes(left) == bytes(right)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict) and list(left) == list(right) and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, float) and left != left:
        return right != right
    return type(left) is type(right) and left == right


OF_EACH_TYPE = (
    "1", "1u", "1.5", "'1'", "b'1'", "true", "null", "[1]", "{'a': 1}", "timestamp(0)", "duration('90s')",
)  # fmt: skip


def refused(refusals):
    return [(it.kind, it.subject, it.offset, it.operands) for it in refusals]


def ending(engine, text: str):
    kind = check_text(text, {})
    if isinstance(kind, list):
        return refused(kind)
    value = engine.compile_text(text, {}).evaluate({})
    return kind, bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize("operator", [operator for operator in BINARY if operator not in ("&&", "||")])
def test_every_operator_ends_alike_over_every_pair_of_types(operator):
    for left in OF_EACH_TYPE:
        for right in OF_EACH_TYPE:
            for text in (f"{left} {operator} {right}", f"dyn({left}) {operator} dyn({right})"):
                assert ending(engine_google, text) == ending(engine_celpy, text), text


@pytest.mark.parametrize("operator", BINARY)
def test_our_checker_says_what_googles_says(operator):
    plain = [value for value in OF_EACH_TYPE if value[0] not in "[{"]
    for text in [f"{left} {operator} {right}" for left in plain for right in plain]:
        google, ours = engine_google.compile_text(text, {}), check_text(text, {})
        assert isinstance(google, list) == isinstance(ours, list), text
        assert (refused(google) == refused(ours)) if isinstance(google, list) else google.type == ours, text


@pytest.mark.parametrize("function", [*FUNCTIONS, "!", "-"])
def test_every_function_ends_alike_over_every_type(function):
    for value in OF_EACH_TYPE:
        for text in (f"{function}({value}) == null", f"string({function}(dyn({value})))"):
            assert ending(engine_google, text) == ending(engine_celpy, text), text


@settings(max_examples=250, deadline=None)
@given(expressions, st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)))
def test_both_engines_refuse_the_same_and_give_the_same(text, data):
    if isinstance(check_text(text, VARIABLES), list):
        return  # refused, whichever engine would have evaluated it
    google = engine_google.compile_text(text, VARIABLES)
    celpy = engine_celpy.compile_text(text, VARIABLES)
    assert not isinstance(google, list), google
    assert not isinstance(celpy, list), celpy

    one, other = google.evaluate(data), celpy.evaluate(data)

    assert isinstance(one, Failure) == isinstance(other, Failure), (one, other)
    if not isinstance(one, Failure):
        assert same(one, other), (one, other)


@pytest.mark.parametrize(
    "text",
    ["(b ? 0 : m['a']).b == 1", "(-(m['a'])).all(x, x)", "{'k': ['a', 2], 'a': b}.b", "(b ? {} : {'a': 1})[m]",
     "((b ? m : 1u)['a']).b", "m['a'].map(x, x).size() == m['b']"],
)  # fmt: skip
def test_nobody_guesses_the_type_of_what_is_dynamic_from_its_surroundings(text):
    assert not isinstance(check_text(text, VARIABLES), list)

    google, celpy = (engine.compile_text(text, VARIABLES) for engine in (engine_google, engine_celpy))
    data = {"b": True, "m": {"a": [1], "b": 2}}
    assert google.evaluate(data) == celpy.evaluate(data)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False))
def test_both_engines_write_a_number_alike(value):
    google = engine_google.compile_text("string(d)", {"d": "dyn"}).evaluate({"d": value})

    assert google == engine_celpy.compile_text("string(d)", {"d": "dyn"}).evaluate({"d": value})


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab.,()[]{}'+-<=!&|?:1 \n\"\\rx", max_size=25))
def test_both_engines_take_what_is_not_refused(text):
    checked = check(text, Scope())
    if checked.faults:
        return

    for engine in (engine_google, engine_celpy):
        assert not isinstance(engine.compile_text(text, dict.fromkeys(checked.roots, "dyn")), list), engine.NAME


@pytest.mark.parametrize(
    "text", ["(a", "a b", "a >=", "a = 1", "'x", "a ? b", "a.b.", "{'a' 1}", "a[", "&& a", "1 +* 2", "a..b"]
)
def test_a_syntax_error_is_told_in_the_same_words_at_the_same_place(text):
    (fault,) = check(text, Scope()).faults
    (other,) = faults_of(engine_google.compile_text(text, {"a": "dyn", "b": "dyn"})[:1])

    assert fault == other


MALFORMED = Path(__file__).parent / "malformed"
WITHOUT_GOOGLE = """
import sys
from pathlib import Path
sys.modules["cel_expr_python"] = None
from agentflow.workflow.load import InvalidWorkflow
from planners.expressions.engines import ENGINE
from planners.kinds import compile_workflow
assert ENGINE.NAME == "celpy"
for path in sorted(Path(sys.argv[1]).glob("expressions/*.yaml")):
    try:
        compile_workflow(path.read_text())
    except InvalidWorkflow as invalid:
        for it in invalid.problems:
            print(f"expressions/{path.name}:{it.line}:{it.column}: {it.message}")
"""


def test_without_googles_wheel_every_malformed_expression_is_told_in_the_same_words_at_the_same_place():
    rows = [row for row in (MALFORMED / "expected.txt").read_text().splitlines() if row.startswith("expressions/")]

    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_GOOGLE, str(MALFORMED)], capture_output=True, text=True, check=True
    )

    assert len(rows) >= 50
    assert sorted(said.stdout.splitlines()) == sorted(rows)
