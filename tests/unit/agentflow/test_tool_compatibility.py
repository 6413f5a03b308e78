"""Which change of a tool's schemas breaks its callers; what cannot be proven safe counts as a break."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.tools.compatibility import breaking_changes

OLD = {
    "input": {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "text": {"type": "string", "maxLength": 9},
        },
    },
    "output": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
}


def changed(**parts) -> dict:
    """OLD with parts of its input (or output, as `output_…`) replaced."""
    new = {"input": dict(OLD["input"]), "output": dict(OLD["output"])}
    for key, value in parts.items():
        side, name = ("output", key.removeprefix("output_")) if key.startswith("output_") else ("input", key)
        new[side][name] = value
    return new


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        changed(description="other words"),
        changed(properties={**OLD["input"]["properties"], "more": {"type": "string"}}),
        changed(properties={**OLD["input"]["properties"], "id": {"type": "number"}}),
        changed(properties={**OLD["input"]["properties"], "kind": {"enum": ["a", "b", "c"]}}),
        changed(properties={**OLD["input"]["properties"], "text": {"type": "string", "maxLength": 20}}),
        changed(required=[]),
        changed(output_required=["name", "more"], output_properties={"name": {"type": "string"}, "more": {}}),
        {"input": {}, "output": OLD["output"]},
    ],
)
def test_accepting_more_and_promising_more_is_fine(new):
    assert breaking_changes(OLD, new) == []


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (changed(required=["id", "kind"]), "input.kind: callers may still send values without it, and it is required"),
        (changed(additionalProperties=False), "input.*: callers may still send what is no longer allowed"),
        (
            changed(properties={**OLD["input"]["properties"], "id": {"type": "string"}}),
            "input.id: callers may still send",
        ),
        (
            changed(properties={**OLD["input"]["properties"], "kind": {"enum": ["a"]}}),
            "input.kind: callers may still send",
        ),
        (
            changed(properties={**OLD["input"]["properties"], "text": {"type": "string", "maxLength": 5}}),
            "input.text: callers may still send values beyond `maxLength: 5`",
        ),
        (changed(patternProperties={"^x": {"type": "string"}}), "input: `patternProperties` differs"),
        (changed(output_required=[]), "output.name: it may now answer values without it"),
        (changed(output_properties={"name": {"type": ["string", "null"]}}), "output.name: it may now answer null"),
        ({"input": OLD["input"], "output": {}}, "output: it may now answer any type"),
    ],
)
def test_what_callers_send_or_read_must_go_on_to_work(new, said):
    assert any(line.startswith(said) for line in breaking_changes(OLD, new)), breaking_changes(OLD, new)


_schemas = st.recursive(
    st.sampled_from(
        [{}, {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"enum": [1, "a"]}, {"const": 2}]
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), unique=True),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=6,
)
_values = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "b", 1.5]),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=5,
)


def is_declared(schema: dict, value: object) -> bool:
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    return all(name in known and is_declared(known[name], item) for name, item in value.items())


@given(_schemas, _schemas, _values)
def test_a_change_that_is_called_safe_refuses_nothing_that_was_accepted(old, new, value):
    from control_plane.registry.schemas import compile_schema

    # A property that was never declared is one that nobody could rely on: declaring it is not a break.
    if (
        not breaking_changes({"input": old}, {"input": new})
        and is_declared(old, value)
        and compile_schema(old).is_valid(value)
    ):
        assert compile_schema(new).is_valid(value)
