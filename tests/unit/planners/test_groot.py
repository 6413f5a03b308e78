"""Trees to Groot's XML and back: nothing is lost on the way, and what others drew is read as far as it is known."""

import json
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.workflow.load import InvalidWorkflow, read
from agentflow.workflow.tree import KINDS
from agentflow.workflow.tree_load import read_tree
from planners import kinds
from planners.groot.names import BY_KIND
from planners.groot.read import definition
from planners.groot.write import groot
from tests.unit.planners.behavior_tree.play import definition as written
from tests.unit.planners.behavior_tree.random_trees import Grower

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "behaviour-trees.md"


def parts(text: str):
    """A definition as its tree says it, whether in a short form or not, with a parallel's thresholds in numbers."""
    loaded = read(text).loaded
    tree, problems = read_tree(loaded, loaded.workflow.spec)
    assert problems == []

    def told(node):
        part = node.part.model_dump(mode="json", by_alias=True, exclude={"children", "do", "branches"})
        if node.kind == "parallel":
            count = len(node.children)
            part["success"] = {"all": count, "any": 1}.get(part["success"], part["success"])
            part["failure"] = part["failure"] or count - part["success"] + 1
        return node.kind, part, [when for _, when in node.branches], [told(child) for child in node.children]

    around = {key: value for key, value in loaded.document.data["spec"].items() if key not in ("tree", "subtrees")}
    subtrees = {name: (it.params, told(it.root)) for name, it in tree.subtrees.items()}
    return loaded.document.data["metadata"], around, told(tree.root), subtrees


def there_and_back(text: str) -> str:
    xml = groot(read(text).loaded)
    ET.fromstring(xml)
    return json.dumps(definition(xml))


def examples() -> list[str]:
    """Every definition and every tree of the guide."""
    found = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    whole = [text for text in found if text.startswith("apiVersion")]
    subtree = next(text for text in found if text.startswith("tree:"))
    head = written("wait: 1s").partition("  tree:")[0] + "  timeout: 1h\n"
    trees = [written(text, spec="  timeout: 1h\n") for text in found if text not in (*whole, subtree)]
    return [*whole, *trees, head + "".join(f"  {line}\n" for line in subtree.splitlines())]


@pytest.mark.parametrize("text", examples())
def test_every_tree_of_the_guide_comes_back_as_it_was(text):
    back = there_and_back(text)

    assert parts(back) == parts(text)
    assert kinds.compile(back).plan().plan_hash == kinds.compile(text).plan().plan_hash


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_tree_comes_back_as_it_was(seed, size):
    text = written(json.dumps(Grower(random.Random(seed)).node(size)))

    assert parts(there_and_back(text)) == parts(text)


def test_texts_numbers_and_options_come_back_to_the_letter():
    tree = {
        "sequence": [
            {"action": {"agent": "a", "input": {"n": 1, "s": "1", "t": "<\"'&\n\t>", "none": None}, "name": "first",
                        "timeout": "1500ms", "retry": {"max_attempts": 5, "initial": "1s", "jitter": "none"},
                        "output": {"type": "object"}, "vars": {"x": "${output.a}"}}},
            {"condition": "vars.x == 'é < \"1\" && true'"},
            {"set": {"y": [1, 2.5, {"deep": None}]}},
            {"wait": {"until": "${vars.x}"}},
            {"parallel": {"success": "any", "children": [{"wait": "3s"}, {"human": {"title": "Ready?", "form": {}}}]}},
            {"repeat": {"times": 3, "do": {"subworkflow": {"workflow": "other", "version": "^1.2", "input": None}}}},
        ]
    }  # fmt: skip
    text = written(json.dumps(tree), spec='  vars: {x: 1, n: "1"}\n  timeout: 1h\n  input: {type: object}\n')

    assert parts(there_and_back(text)) == parts(text)


def test_every_kind_of_node_has_a_name_in_groot():
    assert BY_KIND.keys() == KINDS.keys()


FOREIGN = """\
<?xml version="1.0"?>
<root BTCPP_format="4" main_tree_to_execute="Patrol">
  <BehaviorTree ID="Patrol">
    <ReactiveSequence>
      <ScriptCondition code="vars.battery > 20"/>
      <Fallback name="get_in">
        <SubTree ID="Enter" door="{front_door}"/>
        <RetryUntilSuccessful num_attempts="3"><Action ID="Knock" times="2"/></RetryUntilSuccessful>
        <AlwaysFailure/>
      </Fallback>
      <Parallel success_count="1"><MoveTo goal="{goal}" speed="fast"/><Sleep msec="500"/></Parallel>
    </ReactiveSequence>
  </BehaviorTree>
  <BehaviorTree ID="Enter"><Inverter><OpenDoor which="{door}"/></Inverter></BehaviorTree>
  <TreeNodesModel><Action ID="MoveTo"><input_port name="goal"/></Action></TreeNodesModel>
</root>
"""


def test_a_tree_that_somebody_drew_becomes_a_definition():
    made = definition(FOREIGN, name="patrol", version="2.0.0")

    assert made["metadata"] == {"name": "patrol", "version": "2.0.0"}
    sequence = made["spec"]["tree"]["sequence"]
    assert sequence["memory"] is False
    condition, get_in, both = sequence["children"]
    assert condition == {"condition": {"when": "vars.battery > 20"}}
    assert get_in["selector"]["name"] == "get_in"
    assert get_in["selector"]["children"] == [
        {"subtree": {"use": "Enter", "with": {"door": "${vars.front_door}"}}},
        {"retry": {"attempts": 3, "do": {"action": {"agent": "Knock", "input": {"times": "2"}}}}},
        {"condition": {"when": "false"}},
    ]
    assert both["parallel"]["children"][0] == {
        "action": {"agent": "MoveTo", "input": {"goal": "${vars.goal}", "speed": "fast"}}
    }
    assert (both["parallel"]["success"], both["parallel"]["failure"]) == (1, 1)
    assert made["spec"]["subtrees"]["Enter"]["params"] == ["door"]
    made["spec"]["vars"] = {"battery": 50, "front_door": "north", "goal": [1, 2], "door": None}
    kinds.compile(json.dumps(made))


TREE = '<root BTCPP_format="4">\n  <BehaviorTree ID="t">\n    {}\n  </BehaviorTree>\n</root>'


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("<root>\n <a></root>", (2, 7), "This is not XML: mismatched tag."),
        ("", (1, 1), "This is not XML: no element found."),
        ("<tree/>", (1, 1), "The file begins with `tree`, not with `root`."),
        ("<root/>", (1, 1), "There is no `BehaviorTree`."),
        ('<!DOCTYPE a [<!ENTITY x "y">]>\n<root/>', (1, 13), "A document type is not read."),
        (TREE.format("<Sleep msec='1'/><Sleep msec='1'/>"), (2, 3), "`BehaviorTree` has one node below it, not 2."),
        (TREE.format("<Switch2><Sleep msec='1'/></Switch2>"), (3, 5), "There is no node `Switch2` here."),
        (TREE.format("<Condition ID='IsOpen'/>"), (3, 5), "There is no node `IsOpen` here."),
        (TREE.format("<Sequence><Sleep msec='soon'/></Sequence>"), (3, 15), "`msec` is `soon`, and not a number."),
        (TREE.format("<Step agent='a' input='{'/>"), (3, 5), "`input` is not JSON."),
        (TREE.format("<Sleep msec='1'><Sleep msec='1'/></Sleep>"), (3, 5), "`Sleep` has no nodes below it."),
        (TREE.format("<ConditionalSelector><Sleep/></ConditionalSelector>"), (3, 26), "`Sleep` is not a `Branch`."),
        (TREE.format("<Inverter>" * 120 + "</Inverter>" * 120), None, "The file is too large."),
        ('<root main_tree_to_execute="u"><BehaviorTree ID="t"/></root>', (1, 1), "There is no tree `u`."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(text, place, message):
    with pytest.raises(InvalidWorkflow) as refused:
        definition(text)

    (problem,) = refused.value.problems
    assert problem.message == message
    assert place is None or (problem.line, problem.column) == place


def test_a_machine_and_what_xml_cannot_hold_are_refused():
    machine = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\nspec:\n  planner: fsm\n"
    machine += "  fsm: {initial_state: a, final_states: [a], states: {a: {agent: x}}}\n"
    for text in (machine, written('human: {title: "bell \\u0007"}', spec="  timeout: 1h\n")):
        with pytest.raises(InvalidWorkflow):
            groot(read(text).loaded)
