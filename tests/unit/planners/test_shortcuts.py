"""Conditions that need no engine: what a shortcut answers is what both engines answer, and it leaves them the rest."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentflow import limits
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions import engine_google, shortcut
from planners.expressions.engine import Failure
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.lexer import name_paths, tokens
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import ANYTHING

REF = WorkflowRef(WorkflowId("wf_t"), "support", "1.0.0", "digest")
NAMES = ("status", "input.n", "output.status", "vars.n", "env.n", "steps.s.output.n", "item", "item.n")
SCOPE = Scope(steps={"s": ANYTHING}, locals={"item": ANYTHING})

LITERALS = st.sampled_from(
    ["0", "1", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "0x10", "1.0", "0.5", "-0.0",
     "9007199254740992.0", "1e300", "true", "false", "null", "''", "'a'", "'b'", "'é'", "r'\\d'", "'\\n'", "1u", "b'a'"]
)  # fmt: skip
TERMS = st.one_of(
    st.tuples(st.sampled_from(["", "!"]), st.sampled_from(NAMES)).map("".join),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), LITERALS).map(" ".join),
    st.tuples(st.sampled_from(NAMES), st.lists(LITERALS, min_size=1, max_size=3).map(", ".join)).map(
        lambda it: f"{it[0]} in [{it[1]}]"
    ),
)
CONDITIONS = st.lists(st.lists(TERMS, min_size=1, max_size=3).map(" && ".join), min_size=1, max_size=3).map(
    " || ".join
)  # fmt: skip
SMALL = st.sampled_from([0, 1, -1, 16, 2**53 + 1, 2**63 - 1, 0.0, 0.5, 1.0, 2.0**53, 1e300, "", "a", "b", "\\", "\n"])
STRANGE = st.sampled_from(
    [2**63, -(2**63) - 1, 2**70, "é", "\ud800", "a" * 300, float("inf"), [], ["a"], {}, {"n": 1}, b"a", object()]
)
# Mostly plain, so that most examples are answered and compared.
VALUES = st.one_of(SMALL, SMALL, SMALL, st.booleans(), st.none(), STRANGE)


def facts_of(values) -> tuple[Facts, dict]:
    """The facts, and the same as an engine is given them: nothing but what is named."""
    known = {name: value for name, value in zip(NAMES[:-1], values, strict=True) if value is not ...}
    item = {} if "item" not in known else {"item": {"n": known["item"]} if known["item"] == 16 else known["item"]}
    below = {
        root: {"n": known[f"{root}.n"]} if f"{root}.n" in known else {} for root in ("input", "vars", "env")
    }  # fmt: skip
    output = {"status": known["status"]} if "status" in known else {}
    steps = {"n": known["steps.s.output.n"]} if "steps.s.output.n" in known else {}
    facts = Facts(below["input"], output, {"s": steps}, REF, None, below["vars"], below["env"], item)
    return facts, {**below, "output": output, **output, "steps": {"s": {"output": steps}}, **item}


def named_only(data: dict, paths) -> dict:
    roots = {path.parts[0] for path in paths}
    return {root: value for root, value in data.items() if root in roots}


def shortcut_for(text: str):
    words = tuple(tokens(text))
    return shortcut.shortcut_of(words, {path.parts[0] for path in name_paths(words)}, SCOPE.locals)


@settings(max_examples=600, deadline=None)
@given(CONDITIONS, st.tuples(*[VALUES | st.just(...)] * (len(NAMES) - 1)))
@example("status == 1", (True, *[1] * 6))
@example("status < 1.0 && input.n == 1", (0, 2**63, *[1] * 5))
@example("status != 'a' || vars.n", (1, 1, "\ud800", 1, 1, 1, 1))
def test_what_a_shortcut_answers_both_engines_answer(text, values):
    facts, data = facts_of(values)
    answer = shortcut_for(text)
    said = None if answer is None else answer(facts)
    if said is None:
        return

    paths = name_paths(tuple(tokens(text)))
    given_data = named_only(data, paths)
    for engine in (engine_google, engine_celpy):
        compiled = engine.compile_text(text, dict.fromkeys(given_data, "dyn"))
        assert compiled.evaluate(given_data) is said, engine.NAME


@pytest.mark.parametrize(
    ("text", "status", "answer"),
    [
        ("status == 'open'", "open", True),
        ("status != 'open'", "open", False),
        ("status >= 0.8", 1, True),
        ("status < 3", 3.5, False),
        ("status in ['open', 'waiting']", "waiting", True),
        ("status in [1, 2.0, null]", 2, True),
        ("status in [1, 2.0, null]", True, False),
        ("status == null", None, True),
        ("status == 1", "1", False),
        ("status > 1 && status < 5 || status == -7", -7, True),
        ("status && output.status", True, True),
        ("!status", False, True),
    ],
)
def test_plain_comparisons_need_no_engine(text, status, answer):
    facts = Facts({}, {"status": status}, {}, REF)

    assert shortcut_for(text)(facts) is answer


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("status == 1", 2**63),
        ("status != 'a'", "é"),
        ("status != 'a'", "a" * 257),
        ("status < 1", "a"),
        ("status == 'a'", ["a"]),
        ("status", 1),
        ("status == 'a' && output.other == 1", "b"),
    ],
)
def test_what_is_missing_large_strange_or_of_another_type_is_left_to_the_engine(text, status):
    assert shortcut_for(text)(Facts({}, {"status": status}, {}, REF)) is None


@pytest.mark.parametrize(
    "text",
    ["(status == 1)", "status + 1 == 2", "size(status) > 0", "1 == status", "status == output.status", "status == 1u",
     "status[0] == 1", "has(output.status)", "status == b'a'", "error.code == 'x'", "workflow.name == 'x'",
     "status in input.n", "status in []", "true", " && ".join(["status == 1"] * (shortcut.TERMS_MAX + 1))],
)  # fmt: skip
def test_whatever_is_more_than_names_and_literals_needs_an_engine(text):
    assert shortcut_for(text) is None


def test_no_condition_with_a_shortcut_could_be_refused_for_its_cost():
    values = shortcut.TERMS_MAX * (1 + shortcut.TEXT_CHARS_MAX // 64) + limits.EXPRESSION_WORDS_MAX

    assert shortcut.TERMS_MAX * values < limits.EXPRESSION_VOLUME_MAX


def test_a_failure_is_told_by_the_engine():
    facts = Facts({}, {"status": "a"}, {}, REF)

    assert shortcut_for("status < 1")(facts) is None
    assert isinstance(engine_google.compile_text("status < 1", {"status": "dyn"}).evaluate({"status": "a"}), Failure)
