"""Conditions and paths: evaluations a second, compile times, and what hostile expressions cost."""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from bench.hostile_expressions import CORPUS
from bench.report import Results
from planners.expressions import engine_google
from planners.expressions.conditions import compile_condition
from planners.expressions.engine import Engine
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.expression import Expression
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import shape_of

WORKFLOW = WorkflowRef(WorkflowId("wf_bench"), "bench", "1.0.0", "digest")
# Twenty comparisons: more than a person writes, as fast as they should be.
TERMS = (
    "input.severity >= 3", "input.kind == 'refund'", "user.role == 'admin'", "confidence >= 0.8",
    "!(status == 'closed')", "status in ['open', 'waiting']", "len(items) > 0", "items[0].price < 100.0",
    "input.ticket.startsWith('T-')", "user.age >= 18", "has(user.email)", "input.tags.exists(t, t == 'vip')",
    "score + 1 > 2", "vars.attempts < 5", "vars.limit > score", "workflow.name == 'bench'", "user.country != 'XX'",
    "input.amount <= vars.limit", "confidence < 1.0", "steps.classify.output.ok",
)  # fmt: skip
TWENTY = " && ".join(TERMS)
FACTS = Facts(
    {"severity": 3, "kind": "refund", "ticket": "T-1", "tags": ["new", "vip"], "amount": 20},
    {
        "user": {"role": "admin", "age": 30, "email": "a@b", "country": "DE"}, "confidence": 0.9, "status": "open",
        "items": [{"price": 5.0}], "score": 7,
    },
    {"classify": {"ok": True}},
    WORKFLOW,
    vars={"attempts": 1, "limit": 50},
)  # fmt: skip
SCOPE = Scope(
    input=shape_of({"type": "object", "properties": {"severity": {"type": "integer"}, "kind": {"type": "string"}}}),
    steps={"classify": shape_of(None)},
)


def run(_console: Console) -> Results:
    name, _ = compile_expression("input.kind", SCOPE)
    if name is None:
        raise RuntimeError("a name is refused")
    return {
        "google": {"conditions": _cel(engine_google), "hostile corpus": _hostile(engine_google)},
        "celpy": {"conditions": _cel(engine_celpy), "hostile corpus": _hostile(engine_celpy)},
        "no engine": {"path": _path(), "name alone": {"evaluations_per_s": _rate(name.value)}},
    }


def _condition(text: str, engine: Engine) -> Expression:
    expression, faults = compile_condition(text, SCOPE, engine)
    if expression is None:
        raise RuntimeError(f"the bench's own condition is refused: {faults}")
    return expression


def _cel(engine: Engine) -> dict[str, float]:
    twenty, one = _condition(TWENTY, engine), _condition("confidence >= 0.8", engine)
    if twenty.holds(FACTS) is not True:
        raise RuntimeError(f"wrong result: {twenty.holds(FACTS)}")
    return {
        "evaluations_per_s_20_terms": _rate(twenty.holds),
        "evaluations_per_s_1_term": _rate(one.holds),
        "traced_per_s_20_terms": _rate(twenty.traced),
        "ms_to_compile_20_terms": _compiling(TWENTY, engine),
        "ms_to_compile_1_term": _compiling("confidence >= 0.8", engine),
    }


def _compiling(text: str, engine: Engine) -> float:
    texts = iter([text + " " * at for at in range(20)])  # no two alike: nothing is found in a cache
    return _best(lambda: _condition(next(texts), engine)) * 1000


def _path() -> dict[str, float]:
    path, _ = compile_expression("$.output.items[?@.price < 10].price", SCOPE)
    if path is None or path.value(FACTS) != [5.0]:
        raise RuntimeError("wrong result")
    return {
        "evaluations_per_s": _rate(path.value),
        "ms_to_compile": _best(lambda: compile_expression("$.output.items[?@.price < 10].price", SCOPE)) * 1000,
    }


def _hostile(engine: Engine) -> dict[str, float]:
    """The slowest of the corpus, to refuse and to evaluate; whatever comes out, it comes out soon."""
    compiling, evaluating = [], []
    for hostile in CORPUS:
        texts = iter([hostile.text + " " * at for at in range(3)])
        compiling.append(_best(lambda it=texts: compile_expression(next(it), Scope(), engine), times=3))
        expression, _ = compile_expression(hostile.text, Scope(), engine)
        if expression is not None:
            facts = Facts({}, hostile.data, {}, WORKFLOW)
            evaluating.append(_best(lambda it=expression, now=facts: it.value(now), times=3))
    return {"hostile_ms_to_compile_max": max(compiling) * 1000, "hostile_ms_to_evaluate_max": max(evaluating) * 1000}


def _rate(function: Callable[[Facts], Any], *, windows: int = 20, count: int = 500) -> float:
    """On one core that is ours: processor time, in the best of a few windows."""
    best = float("inf")
    for _ in range(windows):
        begun = time.process_time()
        for _ in range(count):
            function(FACTS)
        best = min(best, time.process_time() - begun)
    return count / best


def _best(function: Callable[[], Any], *, times: int = 20) -> float:
    best = float("inf")
    for _ in range(times):
        begun = time.process_time()
        function()
        best = min(best, time.process_time() - begun)
    return best
