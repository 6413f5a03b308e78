"""Compiles expressions and templates of a definition, and keeps their faults as problems with a line and a column."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.source_map import Document, Path, path_text
from planners.expressions.conditions import compile_condition
from planners.expressions.evaluate import Expression
from planners.expressions.lexer import line_and_column
from planners.expressions.scope import Scope
from planners.expressions.templates import PlacedFault, Template, compile_template


class Placed:
    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self._document = document

    @property
    def full(self) -> bool:
        return len(self.problems) >= limits.PROBLEMS_SHOWN_MAX

    def template(self, value: Any, scope: Scope, path: Path) -> Template:
        template, faults = compile_template(value, scope, path)
        self._report(faults)
        return template

    def task(
        self, human: Mapping[str, Any], plain: Mapping[str, Any], given: Mapping[str, Any], scope: Scope, at: Path
    ) -> Template:
        """What people are shown: `human` and `given` may hold expressions, `plain` (the form) is taken as it is."""
        escaped = _escaped(dict(plain))
        faults: list[PlacedFault] = []
        for part, path in ((human, (*at, "human")), (given, at)):
            faults += compile_template(dict(part), scope, path)[1]
        self._report(faults)
        return compile_template({**human, **escaped, **given}, scope, at)[0]

    def condition(self, text: str, scope: Scope, path: Path) -> Expression | None:
        if self.full:
            return None
        expression, faults = compile_condition(text, scope)
        self._report(PlacedFault(path, text, fault) for fault in faults)
        return expression

    def _report(self, faults: Iterable[PlacedFault]) -> None:
        for placed in faults:
            line, column = line_and_column(placed.text, placed.fault.offset)
            place = self._document.within(placed.path, line, column)
            self.problems.append(Problem(placed.fault.message, placed.fault.hint, *place, path_text(placed.path)))


def _escaped(value: Any) -> Any:
    """A value whose `${` mean nothing."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
