"""Which other workflows, agents and tools a definition names, as its plain data says: for whoever can look those up."""

from collections.abc import Iterator
from typing import Any

from agentflow.workflow.source_map import Path

# What people hand over, and may look like anything.
_DATA = frozenset({"input", "output", "result", "vars", "succeed", "form", "over", "for"})


def child_workflows(definition: Any) -> Iterator[tuple[str, Path]]:
    """The names, each with the place it stands at; of every planner."""
    for value, at in _parts(definition):
        yield from _named(value.get("subworkflow"), (*at, "subworkflow"))


def agents_named(definition: Any) -> set[str]:
    return _texts(definition, "agent")


def tools_named(definition: Any) -> set[str]:
    """Without their versions."""
    return {name.partition("@")[0] for name in _texts(definition, "tool")}


def steps_with_tools(definition: Any) -> Iterator[tuple[dict[str, Any], Path]]:
    """Whatever asks for a tool, and where it stands."""
    return ((value, at) for value, at in _parts(definition) if isinstance(value.get("tool"), str))


def _texts(definition: Any, key: str) -> set[str]:
    return {value[key] for value, _ in _parts(definition) if isinstance(value.get(key), str)}


def _parts(definition: Any) -> Iterator[tuple[dict[str, Any], Path]]:
    spec = definition.get("spec") if isinstance(definition, dict) else None
    if not isinstance(spec, dict):
        return
    rest: list[tuple[Any, Path]] = [(spec.get(key), ("spec", key)) for key in ("subtrees", "tree", "fsm")]
    while rest:
        value, at = rest.pop()
        if isinstance(value, list):
            rest += [(item, (*at, number)) for number, item in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            rest += [(item, (*at, key)) for key, item in reversed(value.items()) if key not in _DATA]
            yield value, at


def _named(child: Any, at: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(child, str):
        yield child, at
    elif isinstance(child, dict):
        for key in ("name", "workflow"):
            if isinstance(child.get(key), str):
                yield child[key], (*at, key)
