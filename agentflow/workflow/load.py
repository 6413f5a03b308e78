"""A definition's text to its model, with every fault of shape named in a sentence and placed in the text.

Joins `document` (where things stand) and `model` (what may stand there). `read` is for those who go on to
look for more problems (`planners`), `load` for those who want a workflow or an error.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentflow import limits
from agentflow.errors import Invalid, Problem
from agentflow.workflow import document as documents
from agentflow.workflow.model import FsmSpec, TreeSpec, Workflow
from agentflow.workflow.source_map import Document, Path, path_text
from agentflow.workflow.suggest import did_you_mean


class InvalidWorkflow(Invalid):
    """The definition has faults; `problems` holds them in the order of the text."""

    code = "AF1101"

    def __init__(self, problems: list[Problem]) -> None:
        ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line or 0, problem.column or 0))
        shown = ordered[: limits.PROBLEMS_SHOWN_MAX]
        count = f"{len(ordered)} problems" if len(ordered) > 1 else "a problem"
        more = f" (the first {len(shown)} are shown)" if len(ordered) > len(shown) else ""
        super().__init__(
            f"The workflow definition has {count}{more}.",
            hint="Correct the definition at the places named and send it again; `af validate FILE` checks it first.",
            problems=shown,
        )


_STAND_IN = {
    "apiVersion": "agentflow/v1",
    "kind": "Workflow",
    "metadata": {"name": "unnamed", "version": "0.0.0"},
}
_SPECS = {"fsm": FsmSpec, "behavior_tree": TreeSpec}
_SENTENCES_MAX = 10 * limits.PROBLEMS_SHOWN_MAX


@dataclass(frozen=True)
class LoadedWorkflow:
    document: Document
    workflow: Workflow


@dataclass(frozen=True)
class Reading:
    """What could be made of a text. `loaded` may be there beside problems: then it lacks what was wrong."""

    loaded: LoadedWorkflow | None
    problems: list[Problem]


def load(text: str) -> LoadedWorkflow:
    reading = read(text)
    if reading.problems or reading.loaded is None:
        raise InvalidWorkflow(reading.problems)
    return reading.loaded


def read(text: str) -> Reading:
    document, problems = documents.read(text)
    if document is None:
        return Reading(None, problems)
    try:
        return Reading(LoadedWorkflow(document, Workflow.model_validate(document.data)), problems)
    except ValidationError as error:
        faults = error.errors(include_url=False)
    # Each sentence costs a search for what was meant: a hostile definition gets only so many.
    problems += [_problem(document, fault) for fault in faults[:_SENTENCES_MAX]]
    workflow = _what_is_left(document.data, faults)
    return Reading(LoadedWorkflow(document, workflow) if workflow else None, problems)


def _what_is_left(data: Any, faults: list[ErrorDetails]) -> Workflow | None:
    """The workflow without its faulty parts, so that the faults of the rest can be told in the same answer.

    Only what a workflow can do without is cut out: a key of a state at the highest, never a state.
    """
    if not isinstance(data, dict):
        return None
    # What the machine is called has no part in how it works.
    rest = deepcopy(data) | _STAND_IN
    for fault in faults:
        path = _path(fault)
        if path and path[0] in _STAND_IN:
            continue
        # A list is dropped whole: without one element, the places of the others would be wrong.
        path = path[: next((at for at, part in enumerate(path) if isinstance(part, int)), len(path))]
        is_state = path[:3] == ("spec", "fsm", "states") and len(path) <= 4
        if fault["type"] == "missing" or is_state or not path:
            return None
        parent: Any = rest
        for part in path[:-1]:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent.pop(path[-1], None)
    try:
        return Workflow.model_validate(rest)
    except ValidationError:
        return None


def _path(fault: ErrorDetails) -> Path:
    """Where the fault is, in the document's own parts: pydantic marks a faulty key, and the kind of spec it
    looked at, with parts of their own."""
    loc = tuple(part for part in fault["loc"] if part != "[key]" and not str(part).startswith("~"))
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return (*loc, "planner")
    return (*loc[:1], *loc[2:]) if loc[:1] == ("spec",) and len(loc) > 1 else loc


def _problem(document: Document, fault: ErrorDetails) -> Problem:
    return problem_of(document, fault, _path(fault), lambda parent: _keys_at(document, parent))


def problem_of(
    document: Document, fault: ErrorDetails, path: Path, keys_at: Callable[[Path], Iterable[str]]
) -> Problem:
    """What pydantic found at `path`, as a sentence in its place; `keys_at` is asked for the keys known at a path."""
    parent, last = path[:-1], path[-1] if path else ""
    name = path_text(path) or "The definition"
    match fault["type"]:
        case "extra_forbidden":
            where = f"`{path_text(parent)}`" if parent else "a workflow"
            hint = did_you_mean(str(last), keys_at(parent), kind="keys")
            return _placed(f"`{last}` is not a key of {where}.", hint, document.key_position(path), path)
        case "missing" | "union_tag_not_found":
            where = f"`{path_text(parent)}`" if parent else "The definition"
            return _placed(f"{where} has no `{last}`.", f"Add `{last}: …`.", document.key_position(parent), path)
        case "definition":
            key = fault["loc"][-1:] == ("[key]",)
            place = document.key_position(path) if key else document.position(path)
            return _placed(fault["ctx"]["message"], fault["ctx"]["hint"], place, path)
        case kind:
            message, hint = _sentence(kind, fault.get("ctx", {}), fault["input"])
            label = f"`{name}`" if path else name
            return _placed(f"{label} {message}", hint, document.position(path), path)


def _placed(message: str, hint: str, place: tuple[int, int], path: Path) -> Problem:
    return Problem(message, hint, *place, path_text(path))


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "dict_type": "a mapping (`key: value`)",
    "model_type": "a mapping (`key: value`)",
    "model_attributes_type": "a mapping (`key: value`)",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
}


def _sentence(kind: str, ctx: Mapping[str, Any], given: Any) -> tuple[str, str]:
    match kind:
        case _ if kind in _TYPES:
            quotes = kind == "string_type" and isinstance(given, int | float | bool)
            hint = "Put it in quotes." if quotes else f"Write {_TYPES[kind]} here."
            return f"must be {_TYPES[kind]}, not {kind_of(given)}.", hint
        case "union_tag_invalid":
            choices = str(ctx["expected_tags"]).replace("'", "`").replace(", ", " or ")
            return f"must be {choices}, not `{ctx['tag']}`.", f"Write {choices}."
        case "literal_error":
            choices = str(ctx["expected"]).replace("'", "`")
            return f"must be {choices}, not `{given}`.", f"Write {choices}."
        case "greater_than_equal":
            return f"must be at least {ctx['ge']}.", f"It is {given}."
        case "less_than_equal":
            return f"must be at most {ctx['le']}.", f"It is {given}."
        case "too_short":
            return "is empty.", f"Write at least {ctx['min_length']}."
        case "too_long" | "string_too_long":
            return f"is longer than {ctx['max_length']} allows.", "Shorten it, or split the workflow."
        case _:
            return "is not valid.", "See the reference of workflow definitions."


def kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    kinds: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "text"}
    return kinds.get(type(value), "a list" if isinstance(value, list) else "a mapping")


def _keys_at(document: Document, path: Path) -> list[str]:
    """The keys that the model knows at a path."""
    shape: Any = Workflow
    if path[:1] == ("spec",):
        # Which keys a spec may have is a question of its planner.
        shape, path = _SPECS[document.data["spec"]["planner"]], path[1:]
    for part in path:
        shape = _unwrapped(shape, part)
        if isinstance(shape, type) and issubclass(shape, BaseModel):
            known = {field.alias or name: field.annotation for name, field in shape.model_fields.items()}
            shape = known.get(str(part))
        else:
            shape = get_args(shape)[1 if get_origin(shape) is dict else 0]
    shape = _unwrapped(shape)
    fields = shape.model_fields.items() if isinstance(shape, type) and issubclass(shape, BaseModel) else ()
    return [field.alias or name for name, field in fields]


def _unwrapped(annotation: Any, part: str | int = "") -> Any:
    """An annotation without `Annotated[…]` and `| None`; of several forms, the one that has such a part."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        forms = get_args(annotation)
        is_union = get_origin(annotation) is not Annotated
        annotation = forms[-1] if is_union and isinstance(part, int) and forms[-1] is not type(None) else forms[0]
    return annotation
