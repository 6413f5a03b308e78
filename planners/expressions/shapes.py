"""What is known of a value before it exists: JSON Schema read as CEL types.

Reads only what it is sure of; everything else is `dyn`, which the engine checks when it runs. `number` is
`dyn` too: JSON gives whole and broken numbers under that one name, and CEL tells them apart. A value that may be null
keeps its known fields but has no type, since comparing it with null must be allowed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planners.expressions.engine import DYN, OBJECT

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS = {"string": "string", "integer": "int", "boolean": "bool"}
_KINDS = {str: "string", bool: "boolean", int: "integer"}
# What makes a schema say less than its `type`: such a value is looked at when it is there.
_CHOICES = ("oneOf", "anyOf", "allOf", "if", "not", "$dynamicRef")
# Deeper declarations are not looked at: nobody selects through this many fields. Ends recursive schemas too.
_DEPTH_MAX = 16


@dataclass(frozen=True)
class Shape:
    """A type, the fields that are known of it, and whether there can be no others (`closed`); `items` of a list."""

    type: str = DYN
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    closed: bool = False
    items: "Shape | None" = None


ANYTHING = Shape()


def record(**fields: Shape) -> Shape:
    """An object with exactly these fields."""
    return Shape(OBJECT, fields, closed=True)


def shape_of(schema: Mapping[str, Any] | None) -> Shape:
    return _Reader(schema).shape(schema, 0)


class _Reader:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = 2_000  # shapes of one schema: references may name each other any number of times

    def shape(self, schema: Any, depth: int) -> Shape:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _DEPTH_MAX or self._left < 0:
            return ANYTHING
        if "$ref" in schema:
            # Beside a reference may stand more that must hold; what the reference says is still true.
            return self.shape(self._referred(schema["$ref"]), depth + 1)
        if any(choice in schema for choice in _CHOICES):
            return ANYTHING
        kind = schema.get("type", _kind_of_values(schema))
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            only = self._of(kinds[0], schema, depth) if len(kinds) == 1 else ANYTHING
            return only if len(kinds) == len(kind) else replace(only, type=DYN)
        shape = self._of(kind, schema, depth)
        return replace(shape, type=DYN) if schema.get("nullable") is True else shape

    def _of(self, kind: Any, schema: dict[str, Any], depth: int) -> Shape:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            items = self.shape(schema.get("items"), depth + 1)
            return Shape(f"list<{items.type}>", items=items)
        return Shape(_SCALARS.get(kind, DYN)) if isinstance(kind, str) else ANYTHING

    def _object(self, schema: dict[str, Any], depth: int) -> Shape:
        declared = schema.get("properties")
        properties = declared if isinstance(declared, dict) else {}
        fields = {
            name: self.shape(inner, depth + 1) for name, inner in properties.items() if _NAME.fullmatch(str(name))
        }
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        return Shape(OBJECT, fields, closed)

    def _referred(self, reference: Any) -> Any:
        """What a reference inside the same schema points to (`#/$defs/user`); None where it leads elsewhere."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                return None
            found = found[name]
        return found


def _kind_of_values(schema: dict[str, Any]) -> Any:
    """The type of an `enum` or `const` that has no `type`; None where its values differ."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(values, list) or not values:
        return None
    kinds = {_KINDS.get(type(value)) if value is not None else "null" for value in values}
    if None in kinds:
        return None
    return kinds.pop() if len(kinds) == 1 else sorted(kind for kind in kinds if kind is not None)
