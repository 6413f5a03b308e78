"""What we rely on in the CEL engines, and what we keep away from."""

import builtins
import subprocess
import sys

import pytest

from planners.expressions import engine_google, engines
from planners.expressions.conditions import compile_condition
from planners.expressions.engine import DYN, Compiled, Failure
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.engines import check_text
from planners.expressions.scope import Facts, Scope

ENGINES = pytest.mark.parametrize("engine", [engine_google, engine_celpy], ids=["google", "celpy"])


def compiled(engine, text: str, **variables: str) -> Compiled:
    result = engine.compile_text(text, variables)
    assert not isinstance(result, list), result
    return result


def test_google_is_the_engine_where_its_wheel_exists():
    assert engines.ENGINE is engine_google


def test_without_googles_wheel_the_other_engine_speaks(monkeypatch):
    load = builtins.__import__

    def without_google(name, *rest):
        if name == "planners.expressions" and "engine_google" in (rest[2] or ()):
            raise ImportError("no wheel for this platform")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_google)

    assert engines._available() is engine_celpy


def test_a_workflow_compiles_and_decides_where_googles_wheel_cannot_be_imported():
    program = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from planners.expressions.conditions import compile_condition\n"
        "from planners.expressions.engines import ENGINE\n"
        "from planners.expressions.scope import Facts, Scope\n"
        "condition, faults = compile_condition('response.confidence >= 0.8', Scope())\n"
        "print(ENGINE.NAME, faults, condition.holds(Facts(None, {'response': {'confidence': 1}}, {}, None)))"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert said.stdout.split() == ["celpy", "[]", "True"]


@pytest.mark.parametrize("value", [None, [None], {"a": None, "b": [{"c": None}]}])
@ENGINES
def test_a_null_result_does_not_use_up_the_references_to_none(engine, value):
    # Before Python 3.12 `None` is counted; a binding that gives it away uncounted ends the process some day.
    expression = compiled(engine, "a", a=DYN)
    before = sys.getrefcount(None)

    for _ in range(5_000):
        assert expression.evaluate({"a": value}) == value

    assert sys.getrefcount(None) > before - 1_000


@pytest.mark.parametrize("value", [True, 0, -1, 1.5, "é😀", [], {}, [1, "x", {"y": [False]}], {"k": {"l": 2**53}}])
@ENGINES
def test_json_values_pass_through_the_engine_unchanged(engine, value):
    result = compiled(engine, "a", a=DYN).evaluate({"a": value})

    assert result == value
    assert type(result) is type(value)


@ENGINES
def test_an_evaluation_stops_at_ten_thousand_iterations(engine):
    result = compiled(engine, "a.all(x, x == 0)", a=DYN).evaluate({"a": [0] * 10_001})

    assert isinstance(result, Failure)
    assert result.reason == "it takes more than 10,000 iterations"


@ENGINES
def test_a_result_nested_too_deeply_is_a_failure(engine):
    deep: object = 1
    for _ in range(900):
        deep = [deep]

    assert isinstance(compiled(engine, "a", a=DYN).evaluate({"a": deep}), Failure)


@ENGINES
def test_every_error_of_a_text_has_its_place(engine):
    refusals = engine.compile_text("a.b +\n zz(1) + cc", {"a": "map<string, int>"})

    assert isinstance(refusals, list)
    assert [(it.kind, it.subject, it.offset) for it in refusals] == [("function", "zz", 9), ("name", "cc", 15)]


@ENGINES
def test_a_dotted_variable_types_a_field(engine):
    assert compiled(engine, "input.n > 1", **{"input": DYN, "input.n": "int"}).type == "bool"
    assert isinstance(engine.compile_text("input.n > 'x'", {"input": DYN, "input.n": "int"}), list)


@ENGINES
def test_a_map_is_walked_and_written_in_the_order_of_its_keys(engine):
    # Google's runtime walks maps in an order that changes from process to process; a decision must not.
    data = {"a": dict.fromkeys("zyxwvutsrqponm", 1)}

    assert compiled(engine, "a.map(key, key)", a=DYN).evaluate(data) == sorted(data["a"])
    assert compiled(engine, "a.filter(key, key != 'z')", a=DYN).evaluate(data) == sorted(data["a"])[:-1]
    assert list(compiled(engine, "{'z': 1, 'y': 2, 'a': a}", a=DYN).evaluate({"a": 1})) == ["a", "y", "z"]


@ENGINES
@pytest.mark.parametrize(
    "text",
    [
        "a.b.map(x, x + 1)", "[1, 2].map(x, x + 1)", "(a.b).map(x, x + 1)", "a['b'].map(x, x + 1)",
        ".a.b.map(x, x + 1)", "true ? a.b.map(x, x + 1) : []", "[[1, 2]][0].map(x, x + 1)",
        "a.b.filter(x, x > 0).map(x, x + 1)", "[2, 3].map(y, [1, 2].filter(z, z == y - 1)[0] + 1)",
        "1 in a.b.map(x, x) ? a.b.map(x, x + 1) : [0]", "{'k': a.b.map(x, x + 1)}.k",
        "!false ? [1, 2].map(x, x + 1) : []",
        "a.b == (a.b.map(x, x)) ? dyn(a.b).map(x, x + 1) : [9]",
    ],
)  # fmt: skip
def test_a_list_is_built_wherever_its_source_stands(engine, text):
    assert compiled(engine, text, a=DYN).evaluate({"a": {"b": [1, 2]}}) == [2, 3]


@ENGINES
def test_an_item_of_something_dynamic_can_be_walked_and_its_faults_keep_their_place(engine):
    assert compiled(engine, "a['b'].all(x, x > 0)", a=DYN).evaluate({"a": {"b": [1]}}) is True

    (refusal,) = check_text("a['b'].all(x, zz(x))", {"a": DYN})

    assert (refusal.kind, refusal.offset) == ("function", 16)


@ENGINES
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a.all(key, a[key] > 0)", "`>` does not take (string, int)"),
        ("a.exists(key, a[key] > 5)", "`>` does not take (string, int)"),
        ("a.exists_one(key, a[key] > 5)", "`>` does not take (list, int)"),
        ("a.map(key, a[key] + 1)", "`+` does not take (string, int)"),
    ],
)
def test_of_several_reasons_to_fail_the_same_is_given_everywhere(engine, text, reason):
    data = {"a": {"k9": [], "k1": "x", "k5": None, "k3": True, "k4": {}, "k2": 1, "k8": None, "k7": False, "k6": {}}}

    assert compiled(engine, text, a=DYN).evaluate(data) == Failure(reason)


def test_an_expression_is_compiled_when_a_workflow_is_and_never_again(monkeypatch):
    compilations = []
    compile_text = engine_google.compile_text
    monkeypatch.setattr(
        engine_google, "compile_text", lambda text, *rest: compilations.append(text) or compile_text(text, *rest)
    )
    condition, _ = compile_condition("response.confidence >= 0.8 && input.kind == 'x'", Scope())
    once = len(compilations)

    for confidence in range(100):
        condition.holds(Facts({"kind": "x"}, {"response": {"confidence": confidence}}, {}, None))

    assert 0 < once <= 2
    assert len(compilations) == once
