"""Definitions that are wrong, and all that is said about each: `malformed/expected.txt` is the table.

A row is `file:line:column: message`. Every file has one at least, and every problem has its row; add a file, run
this test, and judge what it says before you copy it.
"""

import copy
import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.workflow.load import InvalidWorkflow
from planners.kinds import compile_workflow
from tests.unit.planners.behavior_tree.random_trees import Grower

HERE = Path(__file__).parent / "malformed"


def table() -> dict[str, list[str]]:
    rows: dict[str, list[str]] = defaultdict(list)
    for line in (HERE / "expected.txt").read_text().splitlines():
        name, place = line.split(".yaml:", 1)
        rows[f"{name}.yaml"].append(place)
    return rows


TABLE = table()
FILES = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.yaml"))


def test_every_file_is_in_the_table_and_every_row_has_a_file():
    assert sorted(TABLE) == FILES


@pytest.mark.parametrize("file", FILES)
def test_a_malformed_definition_gets_the_right_messages_at_the_right_places(file):
    with pytest.raises(InvalidWorkflow) as caught:
        compile_workflow((HERE / file).read_text())

    told = [f"{problem.line}:{problem.column}: {problem.message}" for problem in caught.value.problems]
    assert told == TABLE[file]
    assert all(problem.hint for problem in caught.value.problems), "a problem without a cure"


JUNK = st.sampled_from([None, [], {}, "", "x", 5, True, [None], {"x": {}}, {"action": None}, {"do": {}}, -1])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), JUNK)
def test_whatever_stands_in_a_tree_it_compiles_or_is_refused_with_a_reason_and_a_place(seed, size, junk):
    chance = random.Random(seed)
    tree = {"tree": Grower(chance).node(size)}
    _spoil(tree, chance, junk)
    spec = {"planner": "behavior_tree", **tree}
    document = {
        "apiVersion": "agentflow/v1",
        "kind": "Workflow",
        "metadata": {"name": "x", "version": "1.0.0"},
        "spec": spec,
    }
    problems = _problems(json.dumps(document))

    assert problems is None or problems
    assert all(problem.line and problem.column and problem.message for problem in problems or ())


def _problems(text: str):
    """What is wrong; None where nothing is."""
    try:
        compile_workflow(text)
    except InvalidWorkflow as invalid:
        return invalid.problems
    return None


def _spoil(value, chance: random.Random, junk) -> None:
    """Put junk in one place."""
    places = []
    rest = [value]
    while rest:
        holder = rest.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                rest.append(holder[key])
    holder, key = chance.choice(places)
    holder[key] = copy.deepcopy(junk)
