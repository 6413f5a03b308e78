"""The tools that a workflow names: which, where, and whether what it sends them can fit. Pure.

Called by the workflow registry with the tools that are known. A registered tool's mismatch is refused; one with a
built-in tool is told as a warning, because a worker may host a tool of its own under that name.
"""

from collections.abc import Mapping
from typing import Any

from agentflow.errors import Problem
from agentflow.tools.repeating import Repeatable, in_vain
from agentflow.workflow.references import steps_with_tools
from agentflow.workflow.source_map import Document, Path, path_text
from control_plane.registry.schemas import compile_schema, input_problems
from control_plane.registry.tools import RegisteredTool

_TEMPLATE = "${"


def tools_named(definition: Mapping[str, Any]) -> list[str]:
    return sorted({step["tool"] for step, _ in steps_with_tools(definition)})


def tool_problems(document: Document, known: Mapping[str, RegisteredTool]) -> tuple[list[Problem], list[Problem]]:
    """What is wrong for certain, and what may be."""
    wrong, doubtful = [], []
    for step, path in steps_with_tools(document.data):
        tool = known.get(step["tool"])
        if tool is None:
            place = (*path, "tool")
            if "@" in step["tool"]:
                message, hint = (
                    f"There is no tool `{step['tool']}`.",
                    "Push it with `af tool push FILE`, or drop the `@`.",
                )
                wrong.append(_placed(document, place, message, hint))
            else:
                message = f"The tool `{step['tool']}` is not registered: a worker must host it under this name."
                doubtful.append(
                    _placed(document, place, message, "Push it with `af tool push FILE` to have it checked.")
                )
            continue
        found = [
            _placed(document, (*path, "input", *where), f"{tool.name} {tool.version}: {message}")
            for where, message in _mismatches(tool.spec.get("input", {}), step.get("input", {}))
        ]
        (doubtful if tool.builtin else wrong).extend(found)
        repeated = in_vain(f"{tool.name} {tool.version}", Repeatable.of(tool.spec), step, document, path)
        wrong += [repeated] if repeated is not None else []
    return wrong, doubtful


def _mismatches(schema: dict[str, Any], given: Any) -> list[tuple[Path, str]]:
    """Only what is certain before anything has run: a templated value may become whatever it likes."""
    if not _has_template(given):
        return [((), f"{problem.path}: {problem.message}") for problem in input_problems(compile_schema(schema), given)]
    if not isinstance(given, dict):
        return []
    properties = schema.get("properties", {})
    found: list[tuple[Path, str]] = [
        ((), f"the input has no `{name}`, which is required")
        for name in schema.get("required", [])
        if name not in given
    ]
    for name, value in given.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                found.append(((name,), f"the input takes no `{name}`"))
        elif not _has_template(value) and "$ref" not in str(properties[name]):
            found += [
                ((name,), f"`{name}`: {problem.message}")
                for problem in input_problems(compile_schema(properties[name]), value)
            ]
    return found


def _has_template(value: Any) -> bool:
    match value:
        case str():
            return _TEMPLATE in value
        case dict():
            return any(_has_template(item) for item in value.values())
        case list():
            return any(_has_template(item) for item in value)
        case _:
            return False


def _placed(document: Document, path: Path, message: str, hint: str = "") -> Problem:
    return Problem(message, hint, *document.position(path), path_text(path))
