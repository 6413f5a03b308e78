"""An example for every body in the OpenAPI document, made of what its fields say of themselves.

A field says `examples=[…]` where its type tells too little; an operation that was given an example keeps it. Written
by one rule, so that an example cannot fall behind its shape.
"""

from typing import Any

_OF_FORMATS = {"date-time": "2026-11-18T06:00:00.123Z", "email": "mara@example.com"}
_OF_TYPES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "null": None}
_DEEPEST = 8  # a shape that holds itself ends here

Schema = dict[str, Any]


def give_examples(document: dict[str, Any]) -> None:
    """To each JSON body of a request or of a good answer that has none."""
    shapes = document.get("components", {}).get("schemas", {})
    for operations in document["paths"].values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {})]
            bodies += [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            for body in bodies:
                for kind, shown in body.get("content", {}).items():
                    if "json" in kind and "schema" in shown:
                        if "example" not in shown:
                            shown["example"] = example_of(shown["schema"], shapes)
                        _fill(shown["example"], shown["schema"], shapes)


def example_of(schema: Schema, shapes: dict[str, Schema], depth: int = 0) -> Any:
    if "$ref" in schema:
        schema = shapes[schema["$ref"].rpartition("/")[2]]
    for said in ("example", "const"):
        if said in schema:
            return schema[said]
    for said in ("examples", "enum"):
        if schema.get(said):
            return schema[said][0]
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            chosen = [one for one in schema[several] if one.get("type") != "null"] or schema[several]
            return example_of(chosen[0], shapes, depth)
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, shapes, depth)
    if kind == "array":
        item = schema.get("items", {})
        return [] if depth >= _DEEPEST else [example_of(item, shapes, depth + 1)]
    if kind == "string" and "format" in schema:
        return _OF_FORMATS.get(schema["format"], "text")
    if kind == "string":
        return "text".ljust(schema.get("minLength", 0), ".")
    if kind in ("integer", "number"):
        return max(_OF_TYPES[kind], schema.get("minimum", 1))
    return _OF_TYPES.get(kind or "", {})  # without a type: any value will do


def _fill(example: Any, schema: Schema, shapes: dict[str, Schema]) -> None:
    """Put back what is null in an example: FastAPI leaves that out of what it is given."""
    schema = shapes[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(example, list):
        for item in example:
            _fill(item, schema.get("items", {}), shapes)
    elif isinstance(example, dict):
        for name, part in schema.get("properties", {}).items():
            if name in example:
                _fill(example[name], part, shapes)
            elif name in schema.get("required", ()) and {"type": "null"} in part.get("anyOf", ()):
                example[name] = None


def _object(schema: Schema, shapes: dict[str, Schema], depth: int) -> dict[str, Any]:
    """What has to be there, and whatever says by itself what it looks like."""
    required = schema.get("required", ())
    return {
        name: example_of(part, shapes, depth + 1)
        for name, part in schema.get("properties", {}).items()
        if name in required or "examples" in part
    }
