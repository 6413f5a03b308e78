"""Which other workflows a definition starts, as its plain data says: for whoever can look those up."""

from collections.abc import Iterator
from typing import Any

from agentflow.workflow.source_map import Path

# What people hand over, and may look like anything.
_DATA = frozenset({"input", "output", "result", "vars", "succeed", "form", "over", "for"})


def child_workflows(definition: Any) -> Iterator[tuple[str, Path]]:
    """The names, each with the place it stands at; of every planner."""
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
            yield from _named(value.get("subworkflow"), (*at, "subworkflow"))


def _named(child: Any, at: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(child, str):
        yield child, at
    elif isinstance(child, dict):
        for key in ("name", "workflow"):
            if isinstance(child.get(key), str):
                yield child[key], (*at, key)
