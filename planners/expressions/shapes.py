"""What is known of a value before it exists: JSON Schema read as CEL types.

Reads only what it is sure of; everything else is `dyn`, which the engine checks when it runs. `number` is
`dyn` too: JSON gives whole and broken numbers under that one name, and CEL tells them apart.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planners.expressions.engine import DYN, OBJECT

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS = {"string": "string", "integer": "int", "boolean": "bool"}
# Deeper declarations are not looked at: nobody selects through this many fields.
_DEPTH_MAX = 16


@dataclass(frozen=True)
class Shape:
    """A type, the fields that are known of it, and whether there can be no others (`closed`)."""

    type: str = DYN
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    closed: bool = False


ANYTHING = Shape()


def record(**fields: Shape) -> Shape:
    """An object with exactly these fields."""
    return Shape(OBJECT, fields, closed=True)


def shape_of(schema: Mapping[str, Any] | None) -> Shape:
    return _shape(schema, 0)


def _shape(schema: Any, depth: int) -> Shape:
    if not isinstance(schema, dict) or "$ref" in schema or depth > _DEPTH_MAX:
        return ANYTHING
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, depth)
    if kind == "array":
        return Shape(f"list<{_shape(schema.get('items'), depth + 1).type}>")
    return Shape(_SCALARS.get(kind, DYN)) if isinstance(kind, str) else ANYTHING


def _object(schema: dict[str, Any], depth: int) -> Shape:
    declared = schema.get("properties")
    properties = declared if isinstance(declared, dict) else {}
    fields = {name: _shape(inner, depth + 1) for name, inner in properties.items() if _NAME.fullmatch(name)}
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return Shape(OBJECT, fields, closed)
