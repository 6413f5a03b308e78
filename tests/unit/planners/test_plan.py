"""The static plan: the same everywhere for the same definition, and right about how often steps run."""

# ruff: noqa: E501 - a row of a table is one line

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import kinds
from planners.behavior_tree.statuses import statuses
from planners.mermaid import mermaid
from tests.unit.planners.behavior_tree.play import definition
from tests.unit.planners.behavior_tree.random_trees import Grower, ended_well, lived, tree_program

ROOT = Path(__file__).parents[3]
SUPPORT = (ROOT / "templates" / "support" / "workflow.yaml").read_text()
HEAD = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\nspec:\n  planner: fsm\n"
TREE = definition("""
selector:
  - sequence:
      - condition: 'input.kind == "a"'
      - retry: {attempts: 3, do: {action: {name: fix, tool: kb.fix}}}
  - conditional_selector:
      - {when: input.n > 3, do: {action: {agent: big}}}
      - {do: {parallel: {success: any, children: [{action: {agent: x}}, {action: {agent: y}}]}}}
""")


def machine(*states: str, final: str = "[end]") -> str:
    body = "".join(f"      {state}\n" for state in states)
    return f"{HEAD}  timeout: 1h\n  fsm:\n    initial_state: a\n    final_states: {final}\n    states:\n{body}"


def shape_of(text: str):
    shape = kinds.compile(text).plan().shape
    return shape.min, shape.max, {count.name: (count.min, count.max) for count in shape.steps}


@pytest.mark.parametrize("text", [SUPPORT, TREE], ids=["fsm", "behavior_tree"])
def test_the_plan_hash_is_the_same_in_every_process_and_for_every_hash_seed(text):
    command = [sys.executable, "-m", "planners", "--json"]
    told = {
        subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(told) == 1
    assert msgspec.json.decode(told.pop())["plan_hash"] == kinds.compile(text).plan().plan_hash


def test_the_plan_determinism_rate_of_a_hundred_definitions_is_one():
    def plans():
        return [tree_program(Grower(random.Random(seed)).node(30)).plan().plan_hash for seed in range(100)]

    assert plans() == plans()
    assert len(set(plans())) > 90, "different trees have different plans"


def test_the_order_in_which_states_are_written_changes_nothing_and_the_order_of_ways_does():
    states = [
        "a: {agent: x, transitions: [{condition: n > 1, to: b}, {to: end}]}",
        "b: {agent: y, on_success: end}",
        "end:",
    ]
    plan = kinds.compile(machine(*states)).plan()

    assert kinds.compile(machine(*reversed(states))).plan().plan_hash == plan.plan_hash
    other = "a: {agent: x, transitions: [{condition: n > 2, to: b}, {to: end}]}"
    assert kinds.compile(machine(other, *states[1:])).plan().plan_hash != plan.plan_hash


@pytest.mark.parametrize(
    ("states", "least", "most", "steps"),
    [
        (["a: {agent: x, on_success: end}", "end:"], 1, 1, {"a": (1, 1)}),
        (
            ["a: {agent: x, on_success: b, on_error: c}", "b: {agent: x, on_success: d}", "c: {agent: x, on_success: d}", "d: {agent: x, on_success: end}", "end:"],
            3, 3, {"a": (1, 1), "b": (0, 1), "c": (0, 1), "d": (1, 1)},
        ),
        (
            ["a: {agent: x, transitions: [{condition: ok, to: end}, {to: b}]}", "b: {agent: x, on_success: a}", "end:"],
            1, None, {"a": (1, None), "b": (0, None)},
        ),
        (["a: {agent: x, transitions: [{condition: ok, to: end}, {to: a}]}", "end:"], 1, None, {"a": (1, None)}),
        (
            ["a: {agent: x, transitions: [{condition: ok, to: end}, {to: b}]}", "b: {agent: x, on_success: c}", "c: {agent: x, on_success: end}", "end:"],
            1, 3, {"a": (1, 1), "b": (0, 1), "c": (0, 1)},
        ),
    ],
)  # fmt: skip
def test_the_shape_of_a_machine(states, least, most, steps):
    assert shape_of(machine(*states)) == (least, most, steps)


@pytest.mark.parametrize(
    ("tree", "least", "most", "steps"),
    [
        ("sequence: [{action: {agent: a}}, {action: {agent: b}}]", 2, 2, {"a": (1, 1), "b": (1, 1)}),
        ("selector: [{action: {agent: a}}, {action: {agent: b}}]", 1, 2, {"a": (0, 1), "b": (0, 1)}),
        ("retry: {attempts: 3, do: {action: {agent: a}}}", 1, 3, {"a": (1, 3)}),
        ("repeat: {times: 4, do: {action: {agent: a}}}", 4, 4, {"a": (4, 4)}),
        ("repeat: {times: 4, until: done, do: {action: {agent: a}}}", 1, 4, {"a": (1, 4)}),
        ("parallel: [{action: {agent: a}}, {action: {agent: b}}]", 2, 2, {"a": (1, 1), "b": (1, 1)}),
        ("parallel: {success: any, children: [{action: {agent: a}}, {action: {agent: b}}]}", 1, 2, {"a": (0, 1), "b": (0, 1)}),
        ("force_success: {action: {agent: a}}", 0, 1, {"a": (0, 1)}),
        ("conditional_selector: [{when: 'input.x', do: {action: {agent: a}}}, {do: {sequence: [{action: {agent: b}}, {action: {agent: c}}]}}]", 1, 2, {"a": (0, 1), "b": (0, 1), "c": (0, 1)}),
        ("selector: {memory: false, children: [{sequence: [{condition: 'input.x'}, {action: {agent: a}}]}, {action: {agent: b}}]}", 1, None, {"a": (0, None), "b": (0, None)}),
        ("retry: {attempts: 2, do: {repeat: {times: 3, do: {action: {agent: a}}}}}", 3, 6, {"a": (3, 6)}),
        ("invert: {retry: {attempts: 2, do: {condition: 'input.x'}}}", 0, 0, {}),
    ],
)  # fmt: skip
def test_the_shape_of_a_tree(tree, least, most, steps):
    assert shape_of(definition(tree)) == (least, most, steps)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(1, 50))
def test_no_run_of_any_tree_leaves_the_bounds_of_its_plan(tree, day, size):
    program = tree_program(Grower(random.Random(tree)).node(size))
    shape = program.plan().shape
    run = lived(program, day)
    ran = Counter(key.rpartition("/")[2] if "/" in key else shape.steps[0].name for key in run.asked)

    assert shape.max is None or len(run.asked) <= shape.max
    assert not ended_well(run) or len(run.asked) >= shape.min
    for count in shape.steps:
        assert count.max is None or ran[count.name] <= count.max
        assert not ended_well(run) or ran[count.name] >= count.min


def test_a_tree_plan_names_its_nodes_as_the_memory_of_a_run_does():
    program = kinds.compile(TREE)
    plan = program.plan()

    assert [node.id for node in plan.nodes] == list(statuses(program.root, {}))
    assert {edge.target for edge in plan.edges} == {node.id for node in plan.nodes} - {"tree"}


def test_mermaid_draws_states_ways_and_errors_with_labels_it_can_read():
    drawn = mermaid(
        kinds.compile(
            machine(
                "a: {agent: x, transitions: [{condition: 'k == \"a<b>#1\"', to: end}, {to: end}], on_error: end}",
                "end:",
            )
        ).plan()
    )

    assert drawn.splitlines() == [
        "flowchart TD",
        '  n0["a: x"]',
        '  n1(["end"])',
        '  n0 -->|"k == #quot;a#lt;b#gt;#35;1#quot;"| n1',
        "  n0 --> n1",
        "  n0 -.-> n1",
    ]


def test_mermaid_draws_a_tree_from_its_root():
    assert mermaid(kinds.compile(definition("sequence: [{condition: input.x}, {wait: 3s}]")).plan()).splitlines() == [
        "flowchart TD",
        '  n0("sequence")',
        '  n1{{"input.x"}}',
        '  n2>"wait 3000 ms"]',
        "  n0 --> n1",
        "  n0 --> n2",
    ]


def test_the_plan_of_the_largest_machine_is_made_in_no_time():
    count = 2_000
    ways = [
        f"s{at}: {{agent: x, transitions: [{{condition: n > 1, to: s{at * 7 % (count - 2) + 1}}}, {{to: s{at + 1}}}]}}"
        for at in range(1, count - 2)
    ]
    text = machine("a: {agent: x, on_success: s1}", *ways, f"s{count - 2}: {{agent: x, on_success: end}}", "end:")
    plan = kinds.compile(text).plan()

    assert (plan.shape.min > 0, plan.shape.max) == (True, None)


@pytest.mark.parametrize(
    ("states", "least", "most", "steps"),
    [
        (["a: {map: {over: '${input}', do: {agent: x}}, on_success: end}", "end:"], 0, None, {"a.do": (0, None)}),
        (["a: {loop: {while: 'true', max: 7, do: {agent: x}}, on_success: end}", "end:"], 0, 7, {"a.do": (0, 7)}),
        (["a: {parallel: {join: any, branches: {p: {agent: x}, q: {agent: x}}}, on_success: end}", "end:"], 1, 2, {"a.p": (0, 1), "a.q": (0, 1)}),
        (["a: {parallel: {branches: {p: {agent: x}, q: {agent: x}}}, on_success: end}", "end:"], 2, 2, {"a.p": (1, 1), "a.q": (1, 1)}),
        (["a: {agent: x, compensation: {tool: t}, on_success: end}", "end:"], 1, 2, {"a": (1, 1), "a.compensation": (0, 1)}),
        (["a: {choice: [{condition: 'input.x', to: b}, {to: end}]}", "b: {succeed: 1}", "end:"], 0, 0, {}),
        (["a: {agent: x, max_visits: 4, transitions: [{condition: ok, to: end}, {to: a}]}", "end:"], 1, 4, {"a": (1, 4)}),
    ],
)  # fmt: skip
def test_what_stands_inside_of_a_state_is_counted_with_it(states, least, most, steps):
    assert shape_of(machine(*states)) == (least, most, steps)
