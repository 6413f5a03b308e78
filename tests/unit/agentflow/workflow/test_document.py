"""Text to data that remembers its places."""

import json
import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import limits
from agentflow.workflow.document import read


def data_of(text: str):
    document, problems = read(text)
    assert problems == []
    return document.data


def only_problem(text: str):
    _, problems = read(text)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("2026-11-18", "2026-11-18"),
        ("1_000", "1_000"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("12", 12),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'12'", "12"),
        ('"true"', "true"),
        ("<<", "<<"),
        ("1.0.0", "1.0.0"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(written, value):
    assert data_of(f"key: {written}") == {"key": value}


def test_json_is_read_as_json():
    value = {
        "text": 'a "quoted" \\ line\nand 😀 é /',
        "numbers": [1, -2, 1.5, 1e3],
        "rest": [True, False, None, {}, []],
    }

    assert data_of(json.dumps(value)) == value
    assert data_of(json.dumps(value, indent="\t", ensure_ascii=False)) == value
    assert data_of('{"a": "\\\\ud83d\\\\ude00"}') == {"a": "\\ud83d\\ude00"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
        max_leaves=8,
    )
)
def test_every_json_object_survives_reading(value):
    assert data_of(json.dumps({"value": value})) == {"value": value}


def test_keys_are_text_however_they_are_written():
    assert data_of("{1: a, true: b, ~: c}") == {"1": "a", "true": "b", "~": "c"}


def test_values_and_keys_know_their_places():
    document, _ = read("first: 1\nsecond:\n  - {a: x, b: 'y'}\n  - plain\n")

    assert document.position(()) == (1, 1)
    assert document.position(("first",)) == (1, 8)
    assert document.key_position(("second",)) == (2, 1)
    assert document.position(("second", 0, "b")) == (3, 15)
    assert document.key_position(("second", 0, "b")) == (3, 12)
    assert document.position(("second", 1)) == (4, 5)
    assert document.key_position(("second", 1)) == (4, 5)


def test_a_path_that_does_not_exist_gives_its_nearest_ancestor():
    document, _ = read("a:\n  b: 1\n")

    assert document.position(("a", "missing", "deeper")) == (2, 3)
    assert document.key_position(("a", "missing", "deeper")) == (1, 1)
    assert document.key_position(("missing",)) == (1, 1)


def test_values_behind_an_alias_stand_where_they_were_written():
    document, _ = read("a: &shared {b: 1}\nc: *shared\n")

    assert document.data == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.position(("c", "b")) == (1, 16)


@pytest.mark.parametrize(
    ("text", "inside", "place"),
    [
        ("k: some plain text", (1, 6), (1, 9)),
        ("k: 'single quoted'", (1, 1), (1, 5)),
        ("k: 'it''s quoted'", (1, 6), (1, 11)),
        ('k: "a \\"b\\" c"', (1, 7), (1, 13)),
        ('k: "\\u00e9\\x41 c"', (1, 4), (1, 16)),
        ("[{k: x}, {k: 'ab'}]", (1, 2), (1, 7)),
        ("k: |\n  first\n   second\n", (2, 2), (3, 4)),
        ("k: |\n\n    first\n", (2, 1), (3, 5)),
        ("k: >\n  folded\n  text\n", (1, 9), (3, 4)),
        ("k: >-\n    folded\n    text\n", (1, 1), (2, 5)),
        ("k: >\n  one\n\n  two\n", (2, 1), (1, 4)),
        ("k: plain over\n  lines", (1, 12), (1, 4)),
    ],
)
def test_a_character_inside_a_text_is_found_in_the_source(text, inside, place):
    document, _ = read(text)
    path = ("k",) if isinstance(document.data, dict) else (0, "k")

    assert document.within(path, *inside) == place


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "empty"),
        ("a: 1\nb: [1, 2\n", 3, 1, "never closed"),
        ("a: {b: 1\n", 2, 1, "never closed"),
        ("a: b: c", 1, 5, "`:` is not expected"),
        ("a:\n\tb: 1", 2, 1, "cannot start a value"),
        ('a: "open', 1, 9, "never closed"),
        ('a: "\\q"', 1, 5, "escape"),
        ("a: 1\na: 2", 2, 1, "`a` is written twice"),
        ("a: !!python/object:os.system x", 1, 4, "Tags are not supported: `!!python/object:os.system`"),
        ("a: !mine {}", 1, 4, "Tags are not supported"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a: *nowhere", 1, 4, "no anchor"),
        ("a: &a [*a]", 1, 8, "inside itself"),
        ("? {a: 1}\n: 2", 1, 3, "key must be text"),
        ("a: 1\nb: \x07", 2, 4, "U+0007"),
        ("a: \ud800", 1, 4, "U+D800"),
        ("a: 9007199254740992", 1, 4, "2^53"),
        ("a: " + "9" * 5000, 1, 4, "2^53"),
        ("a: .inf", 1, 4, "not a number in JSON"),
        ("a: 1e999", 1, 4, "too large"),
        ("%YAML 9.9\n--- a", 1, 1, "not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text, line, column, message):
    problem = only_problem(text)

    assert (problem.line, problem.column) == (line, column)
    assert message in problem.message
    assert problem.hint
    assert "<unicode string>" not in problem.message


def test_a_repeated_key_keeps_the_first_value_and_says_where_it_stands():
    document, problems = read("a: 1\na: {b: 2}\nc: 3")

    assert document.data == {"a": 1, "c": 3}
    assert "1:1" in problems[0].hint


def test_an_alias_bomb_is_refused_at_once():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefghi", "bcdefghij", strict=True)
    )

    begun = time.perf_counter()
    problem = only_problem(bomb)

    assert "aliases written out" in problem.message
    assert time.perf_counter() - begun < 0.5


def test_more_aliases_than_allowed_are_refused():
    text = "a: &a 1\nb: [" + ", ".join(["*a"] * (limits.DEFINITION_ALIASES_MAX + 1)) + "]"

    assert "aliases" in only_problem(text).message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5_000,
        "{a: " * 500 + "1" + "}" * 500,
        "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40,
    ],
)
def test_deep_nesting_is_refused(text):
    assert "deep" in only_problem(text).message


def test_nesting_up_to_the_limit_is_read():
    depth = limits.DEFINITION_DEPTH_MAX - 1

    assert data_of("[" * depth + "]" * depth) is not None


def test_a_definition_that_is_too_large_is_refused():
    assert "bytes" in only_problem("a: " + "x" * limits.DEFINITION_BYTES_MAX).message


def test_carriage_returns_change_no_place():
    document, problems = read(dedent("a:\n  b: 'x'\n").replace("\n", "\r\n"))

    assert problems == []
    assert document.position(("a", "b")) == (2, 6)


@given(
    st.text(alphabet=st.characters(codec=None, exclude_categories=[]))
    | st.text(alphabet="ab:-[]{}&*!|>'\"\n \t#%@?,1.~<")
)
def test_reading_never_raises(text):
    document, problems = read(text)

    assert (document is not None) or problems
