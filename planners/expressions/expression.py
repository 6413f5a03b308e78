"""What a compiled expression answers, whichever language it is written in: a value, or a fault as data.

`value` and `holds` are the hot path and keep no record. `traced` does the same work and tells what was read, for
those who want to show why a decision fell as it did: since nothing here depends on anything but the facts, a trace
can be made at any later time from what was recorded. `planners.tracing` does so, with expressions that are `Watched`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agentflow.contracts.claims import ValueLost, ValueNeeded, within
from agentflow.contracts.step import StepFault
from planners.expressions.scope import Facts

_SHOWN_CHARS_MAX = 200


class Trace(msgspec.Struct, frozen=True):
    """One evaluation: the text, what each name in it stood for, and what came out."""

    expression: str
    language: str  # "cel" or "jsonpath"
    values: Mapping[str, Any]
    result: Any = None
    fault: StepFault | None = None


class Expression(ABC):
    """One compiled expression. `value` gives its result as JSON data or a `StepFault`; nothing is raised."""

    language: str

    def __init__(self, text: str) -> None:
        self.text = text

    @abstractmethod
    def value(self, facts: Facts) -> Any: ...

    @abstractmethod
    def holds(self, facts: Facts) -> bool | StepFault:
        """The result of a condition. Only `true` and `false` decide anything."""

    @abstractmethod
    def values_used(self, facts: Facts) -> dict[str, Any]:
        """Every name that the text reads, with its value; a name that is nowhere is left out."""

    def render(self, facts: Facts) -> Any:
        """As a template: a text that is nothing but an expression."""
        return self.value(facts)

    def looked_into(self, facts: Facts) -> Any:
        """The value, and never a claim on one."""
        try:
            return within(self.value(facts))
        except ValueLost as lost:
            return self._lost(lost)

    def traced(self, facts: Facts, *, condition: bool = False) -> Trace:
        return self.trace_of(self.holds(facts) if condition else self.value(facts), facts)

    def trace_of(self, result: Any, facts: Facts) -> Trace:
        used = self.values_used(facts)
        if isinstance(result, StepFault):
            return Trace(self.text, self.language, used, fault=result)
        return Trace(self.text, self.language, used, result)

    def _lost(self, lost: ValueLost) -> StepFault:
        return StepFault("artifact_lost", f"{self._fault('a value it needs is gone').message} {lost.reason}")

    def _fault(self, reason: str) -> StepFault:
        text = self.text if len(self.text) <= _SHOWN_CHARS_MAX else f"{self.text[:_SHOWN_CHARS_MAX]}…"
        return StepFault("expression_error", f"`{text}` cannot be evaluated: {reason}.")


Watch = Callable[[Trace], None]


class Watched(Expression):
    """An expression that tells of each evaluation. Made only for those who look back; no execution runs with it."""

    def __init__(self, inner: Expression, watch: Watch) -> None:
        super().__init__(inner.text)
        self.language = inner.language
        self._inner = inner
        self._watch = watch

    def value(self, facts: Facts) -> Any:
        return self._told(self._inner.value, facts)

    def holds(self, facts: Facts) -> bool | StepFault:
        result: bool | StepFault = self._told(self._inner.holds, facts)
        return result

    def values_used(self, facts: Facts) -> dict[str, Any]:
        return self._inner.values_used(facts)

    def _told(self, evaluate: Callable[[Facts], Any], facts: Facts) -> Any:
        try:
            result = evaluate(facts)
            self._watch(self._inner.trace_of(result, facts))
        except ValueNeeded:
            fault = StepFault("not_shown", "A large value that it reads is not at hand here.")
            self._watch(Trace(self.text, self.language, {}, fault=fault))
            raise
        return result
