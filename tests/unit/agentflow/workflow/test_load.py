"""Faults of shape: each in a sentence, each in its place."""

# ruff: noqa: E501 - a row of a table is one line

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import limits
from agentflow.errors import Problem
from agentflow.execution.events import Retry
from agentflow.workflow.digest import digest
from agentflow.workflow.durations import format_duration, parse_duration
from agentflow.workflow.load import InvalidWorkflow, load, read
from agentflow.workflow.model import RetryRule

GOOD = dedent(
    """\
    apiVersion: agentflow/v1
    kind: Workflow
    metadata:
      name: support
      version: 1.0.0
    spec:
      planner: fsm
      fsm:
        initial_state: work
        final_states: [done]
        states:
          work:
            agent: worker
            timeout: 20s
            retry: {max_attempts: 3}
            on_success: done
          done:
    """
)


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        load(text)
    return list(caught.value.problems)


def test_a_good_definition_loads_with_its_values():
    workflow = load(GOOD).workflow

    assert workflow.metadata.name == "support"
    assert workflow.spec.fsm.states["work"].timeout == 20_000
    assert workflow.spec.fsm.states["done"].has_step is False


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message", "hint"),
    [
        ("agentflow/v1", "agentflow/v2", 1, 13, "`apiVersion` must be `agentflow/v1`, not `agentflow/v2`.", "Write"),
        ("kind: Workflow", "kind: Workflw", 2, 7, "`kind` must be `Workflow`", "Write"),
        ("kind: Workflow\n", "", 1, 1, "The definition has no `kind`.", "Add `kind: …`."),
        ("name: support", "name: Support", 4, 9, "`Support` is not a workflow name.", "lower-case"),
        ("name: support", "name: 12", 4, 9, "`metadata.name` must be text, not a number.", "Put it in quotes."),
        ("  name: support\n", "", 3, 1, "`metadata` has no `name`.", "Add `name: …`."),
        ("1.0.0", "1.0", 5, 12, "`metadata.version` must be text, not a number.", "Put it in quotes."),
        ("1.0.0", "01.0.0", 5, 12, "`01.0.0` is not a semantic version.", "such as 1.0.0"),
        ("1.0.0", "1.0.0\n  tags: [a, 1]", 6, 13, "`metadata.tags[1]` must be text, not a number.", "quotes"),
        ("1.0.0", "1.0.0\n  tags: a", 6, 9, "`metadata.tags` must be a list, not text.", "Write a list here."),
        ("planner: fsm", "planner: fms", 7, 12, "`spec.planner` must be `fsm` or `behavior_tree`, not `fms`.", "Write"),
        ("planner: fsm", "planner: fsm\n  budget: {}", 8, 3, "`budget` is not a key of `spec`.", "Known keys: planner, fsm"),
        ("initial_state", "inital_state", 9, 5, "`inital_state` is not a key of `spec.fsm`.", "Did you mean `initial_state`?"),
        ("[done]", "[]", 10, 19, "`spec.fsm.final_states` is empty.", "at least 1"),
        ("[done]", "done", 10, 19, "`spec.fsm.final_states` must be a list, not text.", "list"),
        ("      work:", "      work-er:", 12, 7, "`work-er` is not a name for a state.", "steps.<name>.output"),
        ("agent: worker", "agnt: worker", 13, 9, "`agnt` is not a key of `spec.fsm.states.work`.", "Did you mean `agent`?"),
        ("agent: worker", "agent: a.b", 13, 16, "`a.b` is not a name for an agent.", "letter"),
        ("agent: worker", "tool: kb..search", 13, 15, "`kb..search` is not a name for a tool.", "kb.search"),
        ("timeout: 20s", "timeout: 20", 14, 18, "`20` is not a duration.", "number and a unit"),
        ("timeout: 20s", "timeout: 20 s", 14, 18, "`20 s` is not a duration.", "20s"),
        ("timeout: 20s", "timeout: 0s", 14, 18, "`0s` is out of bounds.", "Choose between 1ms and 365d."),
        ("max_attempts: 3", "max_attempts: 0", 15, 31, "`spec.fsm.states.work.retry.max_attempts` must be at least 1.", "It is 0."),
        ("max_attempts: 3", "max_attempts: 101", 15, 31, "must be at most 100.", "It is 101."),
        ("max_attempts: 3", "max_attempts: '3'", 15, 31, "must be a whole number, not text.", "whole number"),
        ("max_attempts: 3", "jitter: some", 15, 25, "must be `full` or `none`, not `some`.", "Write `full` or `none`."),
        ("max_attempts: 3", "max_atempts: 3", 15, 17, "`max_atempts` is not a key of `spec.fsm.states.work.retry`.", "Did you mean `max_attempts`?"),
        ("on_success: done", "transitions: [{condition: ok}]", 16, 23, "`spec.fsm.states.work.transitions[0]` has no `to`.", "Add"),
        ("on_success: done", "transitions: [{to: done, conditon: ok}]", 16, 34, "`conditon` is not a key of", "Did you mean `condition`?"),
        ("      done:", "      done: end", 17, 13, "`spec.fsm.states.done` must be a mapping (`key: value`), not text.", "mapping"),
    ],
)  # fmt: skip
def test_each_fault_of_shape_has_its_place_and_its_cure(old, new, line, column, message, hint):
    assert old in GOOD

    found = [
        problem
        for problem in problems_of(GOOD.replace(old, new, 1))
        if (problem.line, problem.column) == (line, column)
    ]

    assert len(found) == 1, problems_of(GOOD.replace(old, new, 1))
    assert message in found[0].message
    assert hint in found[0].hint


def test_a_misspelt_required_key_is_told_from_both_sides():
    messages = [problem.message for problem in problems_of(GOOD.replace("initial_state", "inital_state"))]

    assert messages == ["`spec.fsm` has no `initial_state`.", "`inital_state` is not a key of `spec.fsm`."]


def test_all_faults_come_at_once_in_the_order_of_the_text():
    broken = GOOD.replace("1.0.0", "one").replace("20s", "soon").replace("agent:", "agnt:")

    assert [(problem.line, problem.column) for problem in problems_of(broken)] == [(5, 12), (13, 9), (14, 18)]


def test_more_problems_than_a_person_reads_are_cut_and_counted():
    states = "".join(f"      s{number}: {{agnt: x}}\n" for number in range(limits.PROBLEMS_SHOWN_MAX + 30))

    with pytest.raises(InvalidWorkflow) as caught:
        load(GOOD + states)

    assert len(caught.value.problems) == limits.PROBLEMS_SHOWN_MAX
    assert f"{limits.PROBLEMS_SHOWN_MAX + 30} problems" in caught.value.message


@pytest.mark.parametrize("text", ["[]", "just text", "42", "null", "{}"])
def test_a_document_that_is_no_workflow_is_refused(text):
    assert problems_of(text)


def test_what_is_left_of_a_faulty_definition_can_be_judged_further():
    reading = read(GOOD.replace("1.0.0", "one").replace("20s", "soon"))

    assert reading.loaded is not None
    assert len(reading.problems) == 2
    assert reading.loaded.workflow.spec.fsm.states["work"].agent == "worker"


def test_too_many_states_are_refused():
    states = "".join(f"      s{number}:\n" for number in range(limits.STATES_PER_WORKFLOW_MAX))

    assert any("is longer than 2000 allows" in problem.message for problem in problems_of(GOOD + states))


def test_the_defaults_of_a_retry_are_those_of_the_heart():
    written, default = RetryRule(), Retry()

    assert (written.initial, written.multiplier) == (default.initial_ms, default.multiplier)
    assert (written.max_attempts, default.max_attempts) == (3, 1)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("200ms", 200), ("20s", 20_000), ("10m", 600_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("1m5ms", 60_005),
        ("", None), ("20", None), ("s", None), ("1.5s", None), ("-1s", None), ("1s1h", None), ("٣s", None),
    ],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text, expected_ms):
    assert parse_duration(text) == expected_ms


@given(st.integers(1, 365 * 86_400_000))
def test_a_written_duration_reads_as_itself(duration_ms):
    assert parse_duration(format_duration(duration_ms)) == duration_ms


def test_the_digest_is_of_the_content_alone():
    commented = "# a comment\n" + GOOD.replace("20s", "20000ms").replace(
        "{max_attempts: 3}", "{max_attempts: 3} # three"
    )
    reordered = GOOD.replace("kind: Workflow\n", "") + "kind: Workflow\n"
    changed = GOOD.replace("20s", "21s")

    digests = [digest(load(text).workflow) for text in (GOOD, commented, reordered, changed)]

    assert digests[0] == digests[1] == digests[2] != digests[3]
    assert len(digests[0]) == 64


def test_the_digest_of_a_known_definition_never_changes():
    # Executions are pinned to it: a new value here means that every stored workflow has lost its identity.
    assert digest(load(GOOD).workflow) == "e06c300d8b8af6bd872e57a0dde9a4eab057668119e0ba5ed253262f55fd36f8"


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"\n \t#1.~"))
def test_loading_raises_nothing_but_invalid_workflow(text):
    with pytest.raises(InvalidWorkflow) as caught:
        load(text)

    assert all(problem.line is not None and problem.column is not None for problem in caught.value.problems)


@given(st.data())
def test_a_mutilated_definition_is_read_or_has_problems_but_never_crashes(data):
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    put = data.draw(st.text(alphabet="ab:-[]{}&*!|>'\"\n #1.~", max_size=5))

    reading = read(GOOD[:start] + put + GOOD[end:])

    assert reading.loaded or reading.problems
