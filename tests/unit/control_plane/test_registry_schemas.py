import pytest

from agentflow.limits import PROBLEMS_SHOWN_MAX
from control_plane.registry.recent import Recent
from control_plane.registry.schemas import check_schema, compile_schema, input_problems

TICKET = {
    "type": "object",
    "required": ["ticket"],
    "properties": {"ticket": {"type": "string"}, "n": {"type": "integer"}},
}


def test_a_good_schema_has_no_faults() -> None:
    assert check_schema(TICKET) == []
    assert check_schema({"$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}, "$ref": "#/$defs/tree"}) == []


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "objekt"}, "type: not a type"),
        ({"properties": {"a": {"minimum": "x"}}}, 'properties.a.minimum: "x" is not of type "number"'),
        ({"pattern": "("}, "pattern:"),
        ({"pattern": "(?=a)b"}, "pattern:"),  # look-around: the price of patterns in linear time
        ({"$ref": "#/nowhere"}, "does not exist"),
        ({"$ref": "https://example.com/schema.json"}, "schema: references outside the schema are not followed"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "references outside the schema are not followed"),
        ([], "schema:"),
    ],
)
def test_each_fault_of_a_schema_names_its_place(schema: object, fault: str) -> None:
    (found,) = check_schema(schema)

    assert fault in found


def test_all_faults_of_a_schema_are_told_at_once() -> None:
    assert len(check_schema({"type": 3, "required": "ticket", "properties": {"a": {"minLength": -1}}})) == 3


def test_all_problems_of_an_input_are_told_at_once_with_their_paths() -> None:
    problems = input_problems(compile_schema(TICKET), {"n": "many"})

    assert {(problem.path, problem.message) for problem in problems} == {
        ("input", '"ticket" is a required property'),
        ("input.n", '"many" is not of type "integer"'),
    }


def test_problems_are_bounded_in_number_and_in_length() -> None:
    schema = compile_schema({"items": {"type": "integer"}})

    problems = input_problems(schema, ["x" * 10_000] * 1_000)

    assert len(problems) == PROBLEMS_SHOWN_MAX
    assert all(len(problem.message) < 400 for problem in problems)


def test_a_pattern_cannot_hold_the_process_up() -> None:
    schema = compile_schema({"pattern": "^(a|a)*$"})

    assert input_problems(schema, "a" * 100_000 + "!")


def test_only_the_most_recently_used_are_kept() -> None:
    recent: Recent[int] = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    recent.get("a")
    recent.keep("c", 3)

    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
