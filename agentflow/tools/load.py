"""A definition's text to its model, every fault in a sentence with its place; and the built-in definitions."""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agentflow import limits
from agentflow.errors import Invalid, Problem
from agentflow.tools.definition import ToolDefinition, digest_of
from agentflow.workflow import document as documents
from agentflow.workflow.source_map import Document, Path, path_text


class InvalidTool(Invalid):
    code = "AF1430"

    def __init__(self, problems: list[Problem]) -> None:
        count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        super().__init__(
            f"The tool definition has {count}.",
            hint="Correct the places named and push it again; docs/guides/tools.md shows every key.",
            problems=sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))[
                : limits.PROBLEMS_SHOWN_MAX
            ],
        )


class LoadedTool(msgspec.Struct, frozen=True):
    definition: ToolDefinition
    data: dict[str, Any]
    digest: str
    document: Document | None = None


def load_tool(text: str) -> LoadedTool:
    document, problems = documents.read(text)
    if document is None:
        raise InvalidTool(problems)
    try:
        definition = ToolDefinition.model_validate(document.data)
    except ValidationError as error:
        raise InvalidTool(problems + [_problem(document, fault) for fault in error.errors(include_url=False)]) from None
    if problems:
        raise InvalidTool(problems)
    return LoadedTool(definition, document.data, digest_of(document.data), document)


def tool_from_data(data: dict[str, Any]) -> LoadedTool:
    """A definition that was checked before it was stored or sent."""
    return LoadedTool(ToolDefinition.model_validate(data), data, digest_of(data))


@cache
def builtin_tools() -> dict[str, LoadedTool]:
    """AgentFlow's own tools by name. They come with the release, so both sides of the bus know the same ones."""
    found = {}
    for entry in files("agentflow.tools.builtin").iterdir():
        if entry.name.endswith(".yaml"):
            tool = load_tool(entry.read_text(encoding="utf-8"))
            found[tool.definition.name] = tool
    return dict(sorted(found.items()))


def _problem(document: Document, fault: ErrorDetails) -> Problem:
    path = _in_document(document.data, fault["loc"])
    last = str(fault["loc"][-1]) if fault["loc"] else ""
    match fault["type"]:
        case "definition":
            message, hint, place = fault["ctx"]["message"], fault["ctx"]["hint"], document.position(path)
        case "missing":
            message, hint, place = f"`{last}` is missing.", f"Add `{last}: …` here.", document.key_position(path)
        case "extra_forbidden":
            message, hint, place = f"`{last}` is not a key of this.", "Check its spelling.", document.key_position(path)
        case "union_tag_not_found" | "union_tag_invalid":
            message, hint = "`run.type` is missing or unknown.", "Write function, command, container, wasm or http."
            place = document.position(path)
        case "dict_type" | "model_type" | "model_attributes_type":
            message, hint, place = "This must be a mapping.", "Write `key: value` lines.", document.position(path)
        case _:
            message = fault["msg"].replace("Input should be", "This must be", 1) + "."
            hint, place = "", document.position(path)
    return Problem(message, hint, *place, path_text(path))


def _in_document(data: Any, location: Path) -> Path:
    """pydantic's location without the parts it adds itself: the tag of a union, `[key]`."""
    found: list[str | int] = []
    for part in location:
        known = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if known:
            data = data[part]
            found.append(part)
    return tuple(found)
