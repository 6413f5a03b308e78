"""Expressions that mean harm are refused, fail, or get an honest answer: the same on both engines, never a crash.

How long that takes is measured by `python -m bench expressions`.
"""

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from bench.hostile_expressions import CORPUS
from planners.expressions import engine_google
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.scope import Facts, Scope

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")
# The few that are no worse than they look, with their right answers.
HARMLESS = {
    "huge exponent": True,
    "as many as allowed": False,
    "maps in a chain": list(range(300)),
    "filters in a chain": [0, *range(4, 300)],
    "backtracking": False,
    "backtracking, twice": False,
    "alternatives": False,
    "counted": True,
    "key that is a method": None,
}


def outcome(hostile, engine):
    expression, checked = compile_expression(hostile.text, Scope(), engine)
    if expression is None:
        return [(fault.message, fault.offset) for fault in checked.faults]
    return expression.value(Facts({}, hostile.data, {}, WORKFLOW))


@pytest.mark.parametrize("hostile", CORPUS, ids=lambda hostile: hostile.why)
def test_a_hostile_expression_does_no_harm(hostile):
    google, celpy = outcome(hostile, engine_google), outcome(hostile, engine_celpy)

    assert google == celpy
    if isinstance(google, StepFault):
        assert google.code == "expression_error"
        assert len(google.message) < 500
    elif not (isinstance(google, list) and google and isinstance(google[0], tuple)):
        assert google == HARMLESS[hostile.why]


@pytest.mark.parametrize("engine", [engine_google, engine_celpy], ids=["google", "celpy"])
@pytest.mark.parametrize(
    ("text", "output", "reason"),
    [
        ("a.all(x, x in a)", {"a": list(range(500))}, "it would read too much data"),
        ("a.all(x, a == a)", {"a": list(range(500))}, "it would read too much data"),
        ("a == b", {"a": list(range(20_000)), "b": [1]}, None),
        ("a == b", {"a": list(range(20_000)), "b": list(range(20_000))}, "it would read too much data"),
        ("a.all(x, x >= 0)", {"a": list(range(5_000))}, None),
        ("a.all(x, x >= 0)", {"a": list(range(9_000))}, "its loops over 9000 items take too many operations"),
        ("a.map(x, x)", {"a": list(range(300))}, None),
        ("a.map(x, x)", {"a": list(range(301))}, "map and filter take lists of at most 300 items here"),
        ("(a + a).map(x, x)", {"a": list(range(200))}, "map and filter take lists of at most 300 items here"),
        ("a.map(x, x.n + 1)", {"a": [{"n": n} for n in range(300)]}, None),
        ("a.map(x, a.map(y, y))", {"a": list(range(51))}, "map and filter take lists of at most 50 items here"),
        (
            "a.map(x, a)",
            {"a": list(range(100))},
            "its result could hold too many values; put lists and objects together",
        ),
        (
            "[a, a, a]",
            {"a": list(range(2_000))},
            "its result could hold too many values; put lists and objects together",
        ),
        ("s.matches('x')", {"s": "y" * 50_000}, None),
        ("s.matches('x')", {"s": "y" * 500_000}, "it would read too much data"),
        ("size(s + s + s)", {"s": "y" * 500_000}, "it would read too much data"),
        ("rows.all(r, r.tags.exists(t, t == 'x'))", {"rows": [{"tags": ["y", "x"]}] * 50}, None),
        ("rows.all(r, r.total <= limit)", {"rows": [{"total": 1, "note": "n" * 100}] * 2_000, "limit": 3}, None),
        ("size(a) > 0 && b == 1 && c == 'x'", {"a": list(range(20_000)), "b": 1, "c": "x"}, None),
    ],
)
def test_the_data_is_weighed_before_an_engine_is_asked(engine, text, output, reason):
    expression, _ = compile_expression(text, Scope(), engine)

    result = expression.value(Facts(None, output, {}, WORKFLOW))

    if reason is None:
        assert not isinstance(result, StepFault), result
    else:
        assert reason in result.message
