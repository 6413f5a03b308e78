"""A CEL expression, checked and ready to be evaluated: a value, or a fault as data. Nothing is raised.

The engine copies every value it is given, so an expression hands over only the parts that it names; one that
is nothing but a name (`input.ticket`) is read directly and its value passes through untouched, and a plain
comparison is answered by `shortcut` where that is sure to say what the engine would.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agentflow import limits
from agentflow.contracts.claims import ValueLost, claims_in, revealed, within
from agentflow.contracts.step import StepFault
from planners.expressions.bounds import cost_of, measure, words_of
from planners.expressions.check import Checked, check, faults_of, runnable
from planners.expressions.engine import DYN, NO_FIELDS, Compiled, Engine, Failure, no_field, no_name
from planners.expressions.engines import ENGINE
from planners.expressions.expression import Expression as Expression
from planners.expressions.expression import Watched
from planners.expressions.faults import Fault
from planners.expressions.jsonpath import compile_path
from planners.expressions.lexer import name_paths
from planners.expressions.reading import MISSING, reader, wanted_of
from planners.expressions.scope import RESERVED, Facts, Scope
from planners.expressions.shortcut import shortcut_of

_INTEGER_MAX = 2**53 - 1
_JSON_RESULTS = "Give back text, a number, true or false, null, a list or an object"


class CelExpression(Expression):
    language = "cel"

    def __init__(
        self,
        text: str,
        checked: Checked,
        compiled: Compiled | None,
        local: Collection[str],
        alone: tuple[str, ...] | None = None,
    ) -> None:
        """`alone` is the path of an expression that is nothing but a name, and needs no engine."""
        super().__init__(text)
        self._evaluate = _no_engine if compiled is None else compiled.evaluate
        places = name_paths(checked.words)
        paths = [path.parts for path in places if path.parts[0] in checked.roots]
        self._names = {path[0]: _no_such(path[0], local) for path in paths}
        self._paths = tuple(dict.fromkeys(paths))
        # A name alone is walked here: nothing needs to be cut down for an engine, except all steps to one.
        wanted = wanted_of(paths) if alone is None or alone[0] == "steps" else {alone[0]: None}
        self._readers = tuple((name, reader(name, parts, local)) for name, parts in wanted.items())
        self._alone = alone
        cost = cost_of(checked.words, places, checked.type) if alone is None else None
        self._cost = None if cost is None or cost.is_small else cost
        self._shortcut = shortcut_of(checked.words, checked.roots, local) if alone is None else None

    def value(self, facts: Facts) -> Any:
        """May be a claim where the expression is nothing but a name: such a value passes through unread."""
        try:
            if self._alone is not None:
                return self._read(facts)
            value = self._result(facts)
        except ValueLost as lost:
            return self._lost(lost)
        if isinstance(value, StepFault):
            return value
        reason = _not_json(value)
        return value if reason is None else self._fault(reason)

    def holds(self, facts: Facts) -> bool | StepFault:
        try:
            value = self._result(facts) if self._alone is None else within(self._read(facts))
        except ValueLost as lost:
            return self._lost(lost)
        if value is True or value is False or isinstance(value, StepFault):
            return value
        return self._fault("it is neither true nor false")

    def values_used(self, facts: Facts) -> dict[str, Any]:
        data = self._data(facts)
        used = {}
        for path in self._paths:
            value: Any = data
            for part in path:
                value = value[part] if isinstance(value, dict) and part in value else MISSING
            if value is not MISSING:
                used[".".join(path)] = value
        return used

    def _data(self, facts: Facts) -> dict[str, Any]:
        data = {}
        for name, read in self._readers:
            value = read(facts)
            if value is not MISSING:
                data[name] = value
        return data

    def _result(self, facts: Facts) -> Any:
        if self._shortcut is not None:
            answer = self._shortcut(facts)
            if answer is not None:
                return answer
        return self._engines_result(facts)

    def _engines_result(self, facts: Facts) -> Any:
        data = self._data(facts)
        if self._cost is not None:
            measured = measure(data)
            if not measured.is_json:
                data = revealed(data)
                measured = measure(data)
            if reason := self._cost.reason_against(data, measured):
                return self._fault(reason)
        result = self._evaluate(data)
        if isinstance(result, Failure) and any(claims_in(data)):
            # The engine met a value that is not here; with it in place the same question has an answer.
            result = self._evaluate(revealed(data))
        return self._failed(result.reason) if isinstance(result, Failure) else result

    def _read(self, facts: Facts) -> Any:
        path = self._alone
        assert path is not None
        ((_, read),) = self._readers
        value = read(facts)
        if value is MISSING:
            return self._failed(no_name(path[0]))
        for part in path[1:]:
            value = within(value)
            if not isinstance(value, dict):
                return self._fault(NO_FIELDS)
            if part not in value:
                return self._fault(no_field(part))
            value = value[part]
        return value

    def _failed(self, reason: str) -> StepFault:
        for name, sentence in self._names.items():
            if reason == no_name(name):
                return self._fault(sentence)
        return self._fault(reason)


def compile_expression(text: str, scope: Scope, engine: Engine = ENGINE) -> tuple[Expression | None, Checked]:
    """The expression and what is known of it; no expression where there are faults. `$` begins a JSONPath."""
    expression: Expression | None
    if text.lstrip().startswith("$"):
        expression, checked = compile_path(text, scope)
    else:
        expression, checked = compile_cel(text, scope, engine)
    return expression if expression is None or scope.watch is None else Watched(expression, scope.watch), checked


def compile_cel(text: str, scope: Scope, engine: Engine = ENGINE) -> tuple[CelExpression | None, Checked]:
    """The expression and what is known of it; no expression where there are faults."""
    checked = check(text, scope)
    if checked.faults:
        return None, checked
    made = _made(text, checked.type, checked.roots, checked.roots.intersection(scope.locals), engine)
    return (made, checked) if isinstance(made, CelExpression) else (None, replace(checked, faults=made))


@lru_cache(limits.EXPRESSIONS_SHARED_MAX)
def _made(
    text: str, kind: str, roots: frozenset[str], local: frozenset[str], engine: Engine
) -> CelExpression | tuple[Fault, ...]:
    """One for all who write the same where the names mean the same: a thousand states often have but a few texts."""
    checked = Checked(words_of(text), (), kind, roots)
    if (name := _name_alone(text, checked)) is not None:
        return CelExpression(text, checked, None, local, name)
    compiled = engine.compile_text(runnable(text, checked.words), dict.fromkeys(sorted(roots), DYN))
    if not isinstance(compiled, list):
        return CelExpression(text, checked, compiled, local)
    return tuple(faults_of(compiled))  # what the checker could not see, such as `has()` of something that is no field


def _name_alone(text: str, checked: Checked) -> tuple[str, ...] | None:
    paths = [path.parts for path in name_paths(checked.words) if path.parts[0] in checked.roots]
    return paths[0] if len(paths) == 1 and text.strip() == ".".join(paths[0]) else None


def _no_engine(_data: Any) -> Failure:
    return Failure("it is only a name")


def _no_such(name: str, local: Collection[str]) -> str:
    where = "" if name in RESERVED or name in local else " in the previous step's output"
    return no_name(name) + where


def _not_json(value: Any) -> str | None:
    """Why a result cannot be written as JSON that every program reads alike; None where it can."""
    rest = [value]
    while rest:
        item = rest.pop()
        if item is None or isinstance(item, str | bool):
            continue
        if isinstance(item, int):
            if abs(item) > _INTEGER_MAX:
                return f"{item} is beyond ±(2^53 - 1)"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return f"{item} is not a number in JSON"
        elif isinstance(item, list):
            rest += item
        elif isinstance(item, dict) and all(isinstance(key, str) for key in item):
            rest += item.values()
        else:
            return f"the result is not JSON. {_JSON_RESULTS}"
    return None
