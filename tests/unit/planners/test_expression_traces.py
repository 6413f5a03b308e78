"""A trace says what an expression read and what came out, and agrees with the evaluation without one."""

import msgspec
import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions import engine_google
from planners.expressions.conditions import compile_condition
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.expression import Trace
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import ANYTHING

NOW = Facts(
    {"severity": 3, "secret": "not named"},
    {"user": {"role": "admin", "age": 30}, "items": [{"id": 1}, {"id": 2}]},
    {"classify": {"kind": "refund"}},
    WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest"),
    vars={"limit": 2},
)
SCOPE = Scope(steps={"classify": ANYTHING, "later": ANYTHING})


@pytest.mark.parametrize("engine", [engine_google, engine_celpy], ids=["google", "celpy"])
@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("user.role == 'admin' && vars.limit > 1", {"user.role": "admin", "vars.limit": 2}, True),
        ("input.severity", {"input.severity": 3}, 3),
        ("has(steps.later.output)", {}, False),
        ("steps.classify.output.kind == 'x'", {"steps.classify.output.kind": "refund"}, False),
        ("items.all(i, i.id > 0)", {"items": [{"id": 1}, {"id": 2}]}, True),
        ("user.age + 1", {"user.age": 30}, 31),
        ("$.output.items[*].id", {"$['output']['items'][0]['id']": 1, "$['output']['items'][1]['id']": 2}, [1, 2]),
        ("$.output.user.role", {"$['output']['user']['role']": "admin"}, "admin"),
    ],
)  # fmt: skip
def test_a_trace_holds_the_text_the_values_it_read_and_the_result(engine, text, values, result):
    expression, _ = compile_expression(text, SCOPE, engine)

    trace = expression.traced(NOW)

    assert trace == Trace(text, "jsonpath" if text.startswith("$") else "cel", values, result)
    assert trace.result == expression.value(NOW)


@pytest.mark.parametrize("text", ["user.role > 3", "missing", "$.output.user.missing"])
def test_the_trace_of_a_failure_holds_the_fault(text):
    expression, _ = compile_expression(text, SCOPE)

    trace = expression.traced(NOW)

    assert isinstance(trace.fault, StepFault)
    assert trace.fault == expression.value(NOW)


def test_the_trace_of_a_condition_holds_its_decision():
    condition, _ = compile_condition("$.output.items[?@.id > 1]", SCOPE)

    trace = condition.traced(NOW, condition=True)

    assert trace.result is True
    assert trace.values == {"$['output']['items'][1]": {"id": 2}}


def test_a_trace_can_be_written_as_json():
    expression, _ = compile_expression("user.role == 'admin'", SCOPE)

    assert msgspec.json.decode(msgspec.json.encode(expression.traced(NOW))) == {
        "expression": "user.role == 'admin'",
        "language": "cel",
        "values": {"user.role": "admin"},
        "result": True,
        "fault": None,
    }
