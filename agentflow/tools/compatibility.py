"""Which change of a tool's schemas breaks whoever calls it. Pure, and careful: what it cannot prove safe is a break.

Callers of one major version wrote against the old schemas: whatever they send must still be accepted, and whatever
they read must still be there. Used by `control_plane.registry.tools` before a version is stored.
"""

from typing import Any

from agentflow.canonical import canonical

# What says nothing about which values are valid.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "$schema", "$id", "format"}
)
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_HANDLED = frozenset(
    {"type", "enum", "const", "required", "properties", "additionalProperties", "items", *_LOWER, *_UPPER}
)


def breaking_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`old` and `new` are definitions' `spec`s. Each line names the place and what no longer holds there."""
    sent = [
        f"input{line}" for line in _excess(old.get("input", {}), new.get("input", {}), "", "callers may still send")
    ]
    read = [f"output{line}" for line in _excess(new.get("output", {}), old.get("output", {}), "", "it may now answer")]
    return sent + read


def _excess(narrow: Any, wide: Any, at: str, who: str) -> list[str]:
    """Why a value that `narrow` allows may be one that `wide` does not; nothing where every such value is fine."""
    if wide is True or wide == {} or canonical(narrow) == canonical(wide):
        return []
    if not isinstance(narrow, dict) or not isinstance(wide, dict):
        return [f"{at or ''}: {who} what is no longer allowed"]
    found: list[str] = []
    found += _types(narrow, wide, at, who)
    found += _values(narrow, wide, at, who)
    found += _bounds(narrow, wide, at, who)
    found += _objects(narrow, wide, at, who)
    if "items" in wide:
        found += _excess(narrow.get("items", {}), wide["items"], f"{at}[]", who)
    for keyword in sorted(set(wide) - _HANDLED - _ANNOTATIONS):
        if keyword not in narrow or canonical(narrow[keyword]) != canonical(wide[keyword]):
            found.append(f"{at}: `{keyword}` differs, and {who} what it forbids")
    return found


def _types(narrow: dict[str, Any], wide: dict[str, Any], at: str, who: str) -> list[str]:
    if "type" not in wide:
        return []
    allowed, given = _listed(wide["type"]), _listed(narrow.get("type", []))
    if not given and not ("enum" in narrow or "const" in narrow):
        return [f"{at}: {who} any type, and only {' or '.join(sorted(allowed))} is allowed"]
    extra = {kind for kind in given if kind not in allowed and not (kind == "integer" and "number" in allowed)}
    return (
        [f"{at}: {who} {' or '.join(sorted(extra))}, and only {' or '.join(sorted(allowed))} is allowed"]
        if extra
        else []
    )


def _values(narrow: dict[str, Any], wide: dict[str, Any], at: str, who: str) -> list[str]:
    allowed = _choices(wide)
    if allowed is None:
        return []
    given = _choices(narrow)
    if given is None:
        return [f"{at}: {who} other values than the listed ones"]
    extra = [text for text in given if text not in allowed]
    return [f"{at}: {who} {', '.join(text.decode() for text in extra)}, which is not listed"] if extra else []


def _bounds(narrow: dict[str, Any], wide: dict[str, Any], at: str, who: str) -> list[str]:
    found = []
    for keyword in (*_LOWER, *_UPPER):
        if keyword in wide:
            mine = narrow.get(keyword)
            beyond = mine is None or (mine < wide[keyword] if keyword in _LOWER else mine > wide[keyword])
            if beyond:
                found.append(f"{at}: {who} values beyond `{keyword}: {wide[keyword]}`")
    return found


def _objects(narrow: dict[str, Any], wide: dict[str, Any], at: str, who: str) -> list[str]:
    mine, theirs = narrow.get("properties", {}), wide.get("properties", {})
    missing = [name for name in wide.get("required", []) if name not in narrow.get("required", [])]
    found = [f".{name}".join((at, "")) + f": {who} values without it, and it is required" for name in missing]
    others = wide.get("additionalProperties", True)
    for name, schema in mine.items():
        found += _excess(schema, theirs.get(name, others), f"{at}.{name}", who)
    open_ended = narrow.get("additionalProperties", True)
    if open_ended is not False and others is not True:
        found += _excess(open_ended, others, f"{at}.*", who)
    for name in theirs:
        if name not in mine and open_ended not in (False, True) and open_ended != {}:
            found += _excess(open_ended, theirs[name], f"{at}.{name}", who)
    return found


def _choices(schema: dict[str, Any]) -> list[bytes] | None:
    if "const" in schema:
        return [canonical(schema["const"])]
    return [canonical(value) for value in schema["enum"]] if "enum" in schema else None


def _listed(kinds: Any) -> list[str]:
    return [kinds] if isinstance(kinds, str) else list(kinds)
