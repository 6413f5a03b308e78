"""A checked expression, ready to be evaluated: a value, or a fault as data. Nothing is raised.

The engine copies every value it is given, so an expression hands over only the parts that it names; one that
is nothing but a name (`input.ticket`) is read directly and its value passes through untouched.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentflow import limits
from agentflow.contracts.step import StepFault
from planners.expressions.bounds import builds_lists, longest_collection
from planners.expressions.check import Checked, check, faults_of, overload, runnable
from planners.expressions.engine import DYN, Compiled, Failure, compile_text
from planners.expressions.lexer import name_paths
from planners.expressions.scope import RESERVED, Facts, Scope

# The part of a value that an expression reads: None is all of it.
_Wanted = dict[str, "_Wanted"] | None
_MISSING = object()
_NO_KEY = re.compile(r'Key not found in map : "?(.*?)"?$')
_NO_NAME = re.compile(r'No value with name "(.*)" found in Activation')
_NO_OVERLOAD = re.compile(r"No matching overloads found : ([^()]*)(\(.*\))")
_STATUS = re.compile(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$")
_SHOWN_CHARS_MAX = 200
_INTEGER_MAX = 2**53 - 1
_JSON_RESULTS = "Give back text, a number, true or false, null, a list or an object."


class Expression:
    """One compiled expression. `value` gives its result as JSON data or a `StepFault`."""

    def __init__(self, text: str, checked: Checked, compiled: Compiled) -> None:
        self.text = text
        self._evaluate = compiled.evaluate
        paths = [path.parts for path in name_paths(checked.words) if path.parts[0] in checked.roots]
        self._path = paths[0] if len(paths) == 1 and text.strip() == ".".join(paths[0]) else None
        self._wanted = _wanted(paths)
        self._limited = builds_lists(checked.words)

    def value(self, facts: Facts) -> Any:
        if self._path is not None:
            return self._read(self._path, facts)
        value = self._result(facts)
        if isinstance(value, StepFault):
            return value
        reason = _not_json(value)
        return value if reason is None else self._fault(reason)

    def holds(self, facts: Facts) -> bool | StepFault:
        """The result of a condition. Only `true` and `false` decide anything."""
        value = self._result(facts) if self._path is None else self._read(self._path, facts)
        if value is True or value is False or isinstance(value, StepFault):
            return value
        return self._fault("it is neither true nor false")

    def _fault(self, reason: str) -> StepFault:
        text = self.text if len(self.text) <= _SHOWN_CHARS_MAX else f"{self.text[:_SHOWN_CHARS_MAX]}…"
        return StepFault("expression_error", f"`{text}` cannot be evaluated: {reason}.")

    def _result(self, facts: Facts) -> Any:
        data = {}
        for root, wanted in self._wanted.items():
            value = _root(root, facts, wanted)
            if value is not _MISSING:
                data[root] = _part(value, wanted)
        if self._limited and longest_collection(data) > limits.EXPRESSION_ITEMS_MAX:
            return self._fault(f"map and filter take lists of at most {limits.EXPRESSION_ITEMS_MAX} items")
        result = self._evaluate(data)
        return self._fault(_reason(result.reason)) if isinstance(result, Failure) else result

    def _read(self, path: Sequence[str], facts: Facts) -> Any:
        value = _root(path[0], facts, {path[1]: None} if len(path) > 1 else None)
        if value is _MISSING:
            return self._fault(_no_such(path[0]))
        for part in path[1:]:
            if not isinstance(value, dict):
                return self._fault(f"`{part}` is read from something that has no fields")
            if part not in value:
                return self._fault(f"there is no field `{part}`")
            value = value[part]
        return value


def compile_expression(text: str, scope: Scope) -> tuple[Expression | None, Checked]:
    """The expression and what is known of it; no expression where there are faults."""
    checked = check(text, scope)
    if checked.faults:
        return None, checked
    compiled = compile_text(runnable(text, checked.words), dict.fromkeys(checked.roots, DYN))
    if isinstance(compiled, Compiled):
        return Expression(text, checked, compiled), checked
    # What the checker could not see, such as `has()` of something that is no field.
    return None, replace(checked, faults=tuple(faults_of(text, compiled)))


def _root(name: str, facts: Facts, wanted: _Wanted) -> Any:
    match name:
        case "input":
            return facts.input
        case "output":
            return facts.output
        case "steps":
            names = facts.outputs if wanted is None else wanted
            return {step: {"output": facts.outputs[step]} if step in facts.outputs else {} for step in names}
        case "workflow":
            return {"name": facts.workflow.name, "version": facts.workflow.version}
        case "error":
            error = facts.error
            return None if error is None else {"code": error.code, "message": error.message}
        case "vars":
            return _picked(facts.vars, wanted)
        case "env":
            return _picked(facts.env, wanted)
    if name in facts.locals:
        return facts.locals[name]
    return facts.output.get(name, _MISSING) if isinstance(facts.output, dict) else _MISSING


def _picked(values: Mapping[str, Any], wanted: _Wanted) -> dict[str, Any]:
    """The engine takes no mapping but a `dict`, and needs only what is named."""
    if isinstance(values, dict):
        return values
    return {name: values[name] for name in (values if wanted is None else wanted) if name in values}


def _wanted(paths: Sequence[Sequence[str]]) -> dict[str, _Wanted]:
    """The names an expression reads, as a tree: `input.a.b` and `input.c` want two parts of `input`."""
    tree: dict[str, _Wanted] = {}
    for path in paths:
        level = tree
        for part in path[:-1]:
            inner = level.setdefault(part, {})
            if inner is None:
                break  # all of it is wanted already
            level = inner
        else:
            level[path[-1]] = None
    return tree


def _part(value: Any, wanted: _Wanted) -> Any:
    if wanted is None or not isinstance(value, dict):
        return value
    return {key: _part(value[key], inner) for key, inner in wanted.items() if key in value}


def _no_such(name: str) -> str:
    where = "" if name in RESERVED else " in the previous step's output"
    return f"there is no `{name}`{where}"


def _reason(said: str) -> str:
    said = _STATUS.sub("", said).strip().rstrip(".")
    if found := _NO_KEY.search(said):
        return f"there is no field `{found[1]}`"
    if found := _NO_NAME.search(said):
        return _no_such(found[1])
    if found := _NO_OVERLOAD.search(said):
        return overload(found[1], found[2])
    if "SELECT" in said:
        return "a field is read from something that has no fields"
    if "Iteration budget" in said:
        return "it takes more than 10,000 iterations"
    return said


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
            return f"the result is not JSON. {_JSON_RESULTS}".rstrip(".")
    return None
