"""Expressions that decide: the `condition` of a transition, the `when` of a branch, the bound of a loop.

Planners call `compile_condition` once for each and ask the result `holds(facts)`. A text that starts with `$` is
JSONPath, any other is CEL.
"""

from planners.expressions.engine import Engine
from planners.expressions.engines import ENGINE
from planners.expressions.evaluate import compile_expression
from planners.expressions.expression import Expression
from planners.expressions.faults import Fault
from planners.expressions.scope import Scope


def compile_condition(text: str, scope: Scope, engine: Engine = ENGINE) -> tuple[Expression | None, list[Fault]]:
    """The condition, or None and its faults: it must be able to give true or false."""
    if text.lstrip().startswith("${"):
        return None, [Fault("A condition is an expression already.", "Write it without `${` and `}`.")]
    expression, checked = compile_expression(text, scope, engine)
    if checked.faults or checked.type in ("bool", "dyn"):
        return expression, list(checked.faults)
    return None, [
        Fault(f"A condition must be true or false; this is of type {checked.type}.", "Compare it to something.")
    ]
