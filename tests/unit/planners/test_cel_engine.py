"""What we rely on in the CEL engine, and what we keep away from."""

import sys

import pytest

from planners.expressions.engine import DYN, Compiled, Failure, compile_text


def compiled(text: str, **variables: str) -> Compiled:
    result = compile_text(text, variables)
    assert isinstance(result, Compiled)
    return result


@pytest.mark.parametrize("value", [None, [None], {"a": None, "b": [{"c": None}]}])
def test_a_null_result_does_not_use_up_the_references_to_none(value):
    # Before Python 3.12 `None` is counted; a binding that gives it away uncounted ends the process some day.
    expression = compiled("a", a=DYN)
    before = sys.getrefcount(None)

    for _ in range(5_000):
        assert expression.evaluate({"a": value}) == value

    assert sys.getrefcount(None) > before - 1_000


@pytest.mark.parametrize("value", [True, 0, -1, 1.5, "é😀", [], {}, [1, "x", {"y": [False]}], {"k": {"l": 2**53}}])
def test_json_values_pass_through_the_engine_unchanged(value):
    result = compiled("a", a=DYN).evaluate({"a": value})

    assert result == value
    assert type(result) is type(value)


def test_an_evaluation_stops_at_ten_thousand_iterations():
    result = compiled("a.all(x, x == 0)", a=DYN).evaluate({"a": [0] * 10_001})

    assert isinstance(result, Failure)
    assert "budget" in result.reason


def test_a_result_nested_too_deeply_is_a_failure():
    deep: object = 1
    for _ in range(900):
        deep = [deep]

    assert isinstance(compiled("a", a=DYN).evaluate({"a": deep}), Failure)


def test_every_error_of_a_text_has_its_line_and_column():
    refusals = compile_text("a.b +\n zz(1) + cc", {"a": "map<string, int>"})

    assert isinstance(refusals, list)
    assert [(it.line, it.column) for it in refusals] == [(2, 4), (2, 10)]


def test_a_dotted_variable_types_a_field():
    assert compiled("input.n > 1", **{"input": DYN, "input.n": "int"}).type == "bool"
    assert isinstance(compile_text("input.n > 'x'", {"input": DYN, "input.n": "int"}), list)
