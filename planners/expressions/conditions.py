"""Expressions that decide: the `condition` of a transition, the `when` of a branch, the bound of a loop.

Planners call `compile_condition` once for each and ask the result `holds(facts)`.
"""

from planners.expressions.check import Fault
from planners.expressions.evaluate import Expression, compile_expression
from planners.expressions.scope import Scope


def compile_condition(text: str, scope: Scope) -> tuple[Expression | None, list[Fault]]:
    """The condition, or None and its faults: it must be able to give true or false."""
    if text.lstrip().startswith("${"):
        return None, [Fault("A condition is an expression already.", "Write it without `${` and `}`.")]
    if text.lstrip().startswith("$"):
        hint = "Write it in CEL, such as `output.confidence >= 0.8`."
        return None, [Fault("JSONPath conditions are not supported yet.", hint)]
    expression, checked = compile_expression(text, scope)
    if checked.faults or checked.type in ("bool", "dyn"):
        return expression, list(checked.faults)
    return None, [
        Fault(f"A condition must be true or false; this is of type {checked.type}.", "Compare it to something.")
    ]
