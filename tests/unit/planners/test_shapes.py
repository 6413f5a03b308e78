"""JSON Schema as types: what is known before a value exists, and what is left to when it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.expressions import engine_google
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.scope import Scope
from planners.expressions.shapes import ANYTHING, Shape, shape_of

DEFINITIONS = {"user": {"type": "object", "additionalProperties": False, "properties": {"role": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (None, "dyn"),
        ({}, "dyn"),
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "int"),
        ({"type": "boolean"}, "bool"),
        ({"type": "number"}, "dyn"),
        ({"type": "null"}, "dyn"),
        ({"type": "object"}, "map<string, dyn>"),
        ({"type": "array"}, "list<dyn>"),
        ({"type": "array", "items": {"type": "integer"}}, "list<int>"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "list<list<string>>"),
        ({"type": ["string", "null"]}, "dyn"),
        ({"type": ["string"]}, "string"),
        ({"type": ["string", "integer"]}, "dyn"),
        ({"type": "string", "nullable": True}, "dyn"),
        ({"enum": ["open", "closed"]}, "string"),
        ({"enum": [1, 2]}, "int"),
        ({"enum": [1, "a"]}, "dyn"),
        ({"enum": ["a", None]}, "dyn"),
        ({"enum": [1.5]}, "dyn"),
        ({"enum": []}, "dyn"),
        ({"const": True}, "bool"),
        ({"type": "string", "enum": ["a"]}, "string"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "dyn"),
        ({"type": "string", "anyOf": [{"minLength": 1}]}, "dyn"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "int"),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "string"}}}, "string"),
        ({"$ref": "#/$defs/missing"}, "dyn"),
        ({"$ref": "https://example.com/schema"}, "dyn"),
        ({"$ref": "#"}, "dyn"),
        ({"$ref": 7}, "dyn"),
        (True, "dyn"),
        ({"type": "object", "properties": []}, "map<string, dyn>"),
    ],
)
def test_a_schema_becomes_a_type(schema, kind):
    assert shape_of(schema).type == kind


def test_what_may_be_null_keeps_its_fields_and_loses_its_type():
    shape = shape_of(
        {"type": ["object", "null"], "additionalProperties": False, "properties": {"a": {"type": "integer"}}}
    )

    assert shape == Shape("dyn", {"a": Shape("int")}, closed=True)


def test_a_recursive_schema_ends():
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }

    shape = shape_of(tree)

    for _ in range(7):
        shape = shape.fields["next"]
    assert shape.fields["next"] == ANYTHING


def test_references_that_multiply_are_not_followed_for_ever():
    wide = {"type": "object", "properties": {f"f{n}": {"$ref": "#/$defs/wide"} for n in range(10)}}

    assert shape_of({"$defs": {"wide": wide}, "$ref": "#/$defs/wide"}).type == "map<string, dyn>"


ORDERS = shape_of(
    {
        "$defs": DEFINITIONS,
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "orders": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "id": {"type": "string"},
                        "buyer": {"$ref": "#/$defs/user"},
                        "lines": {"type": "array", "items": {"$ref": "#/$defs/user"}},
                    },
                },
            },
            "status": {"enum": ["open", "closed"]},
            "owner": {"$ref": "#/$defs/user"},
        },
    }
)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("input.orders.all(order, order.idd == 'x')", "`order` has no field `idd`.", "Did you mean `id`?"),
        ("input.orders.map(o, o.buyer.rol)", "`o.buyer` has no field `rol`.", "Did you mean `role`?"),
        ("input.orders.exists(o, o.lines.exists(l, l.rol == 'x'))", "`l` has no field `rol`.", "Did you mean `role`?"),
        ("input.orders.filter(o, o.id != '').map(x, x.idd)", "`x` has no field `idd`.", "Did you mean `id`?"),
        ("input.orders.all(o, o.id > 3)", "`>` does not take (string, int).", ""),
        ("input.orders.filter(o, o.id != '').exists(x, x.id > 3)", "`>` does not take (string, int).", ""),
        ("input.orders.all(o, o.lines.all(l, l.role == 3))", "`==` does not take (string, int).", ""),
        ("input.orders.exists_one(o, o.id)", "`&&` does not take (bool, string).", ""),
        ("input.orders.map(o, o.id, 1) == []", "`&&` does not take (bool, string).", ""),
        ("input.orders.map(o, o.id + 1)", "`+` does not take (string, int).", ""),
        ("input.orders.all(o, o.id.size > 3)", "A value of type string has no fields.", ""),
        ("input.owner.rolle == 'x'", "`input.owner` has no field `rolle`.", "Did you mean `role`?"),
        ("input.status == 3", "`==` does not take (string, int).", ""),
        ("input.owner.role > 3", "`>` does not take (string, int).", ""),
        ("input.orders > 3", "`>` does not take (list(map(string, dyn)), int).", ""),
    ],
)
@pytest.mark.parametrize("engine", [engine_google, engine_celpy])
def test_nested_schemas_are_checked(engine, text, message, hint):
    _, checked = compile_expression(text, Scope(input=ORDERS), engine)

    ((found, said),) = [(fault.message, fault.hint) for fault in checked.faults]
    assert found == message
    assert hint in said


@pytest.mark.parametrize(
    "text",
    [
        "input.orders.all(order, order.id == 'x' && order.buyer.role == 'y')",
        "input.orders.exists(o, o.lines.exists(o, o.role == 'x'))",
        "input.orders.map(o, o.buyer).map(x, x.anything)",
        "input.orders.exists(o, has(o.id) && o.id.startsWith('x') && o.lines.all(l, l.role != o.id))",
        "input.orders.all(input, input.id == 'x')",
        "input.status in ['open'] && input.owner.role.startsWith('a')",
    ],
)
@pytest.mark.parametrize("engine", [engine_google, engine_celpy])
def test_what_fits_a_nested_schema_compiles(engine, text):
    expression, checked = compile_expression(text, Scope(input=ORDERS), engine)

    assert checked.faults == ()
    assert expression is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "$ref", "enum", "oneOf", "$defs", "a", "#"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_schema_has_a_shape(schema):
    assert isinstance(shape_of(schema), Shape)
