"""How a top-level name is read from `Facts`: chosen once, when an expression is compiled.

A reader gives the value of its name, or only the parts of it that an expression wants: a machine may have thousands
of outputs and an expression names one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from agentflow.contracts.claims import within
from planners.expressions.scope import Facts

MISSING: Any = object()
# The part of a value that an expression reads: None is all of it.
Wanted = dict[str, "Wanted"] | None
Reader = Callable[[Facts], Any]


def reader(name: str, wanted: Wanted, local: Collection[str]) -> Reader:
    """Gives the wanted parts of a top-level name, or `MISSING`. Objects are cut down to what is wanted of them.

    `local` are the names that belong to the place; any other that is not reserved is a field of the previous output.
    """
    match name:
        case "input":
            return lambda facts: part(facts.input, wanted)
        case "output":
            return lambda facts: part(facts.output, wanted)
        case "steps":
            return lambda facts: _steps(facts.outputs, wanted)
        case "vars":
            return lambda facts: part(_object(facts.vars), wanted)
        case "env":
            return lambda facts: part(_object(facts.env), wanted)
        case "workflow":
            return lambda facts: {"name": facts.workflow.name, "version": facts.workflow.version}
        case "error":
            return _error
    if name in local:
        return lambda facts: part(facts.locals.get(name, MISSING), wanted)
    return lambda facts: _field(within(facts.output), name, wanted)


def _field(output: Any, name: str, wanted: Wanted) -> Any:
    return part(output.get(name, MISSING), wanted) if isinstance(output, dict) else MISSING


def _steps(outputs: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    if wanted is None:
        return {step: {"output": output} for step, output in outputs.items()}
    return {
        step: {"output": part(outputs[step], None if inner is None else inner.get("output"))} if step in outputs else {}
        for step, inner in wanted.items()
    }


def _error(facts: Facts) -> dict[str, str] | None:
    error = facts.error
    return None if error is None else {"code": error.code, "message": error.message}


def _object(values: Mapping[str, Any]) -> dict[str, Any]:
    """The engines take no mapping but a `dict`."""
    return values if isinstance(values, dict) else dict(values)


def wanted_of(paths: Sequence[Sequence[str]]) -> dict[str, Wanted]:
    """The names an expression reads, as a tree: `input.a.b` and `input.c` want two parts of `input`."""
    tree: dict[str, Wanted] = {}
    for path in paths:
        level = tree
        for piece in path[:-1]:
            inner = level.setdefault(piece, {})
            if inner is None:
                break  # all of it is wanted already
            level = inner
        else:
            level[path[-1]] = None
    return tree


def part(value: Any, wanted: Wanted) -> Any:
    if wanted is None:
        return value  # unread: it may be a claim
    value = within(value)
    if not isinstance(value, dict):
        return value
    return {key: part(value[key], inner) for key, inner in wanted.items() if key in value}
