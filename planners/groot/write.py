"""A definition to Groot's XML. See `names` for what is called what."""

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec

from agentflow.errors import Problem
from agentflow.workflow import tree as written
from agentflow.workflow.load import InvalidWorkflow, LoadedWorkflow
from agentflow.workflow.model import TreeSpec
from agentflow.workflow.tree import Subtree, TreeNode
from agentflow.workflow.tree_load import read_tree
from planners.groot.names import ALL, BRANCH, BY_KIND, KNOWN, REACTIVE, Known

_BELOW = {"children", "do", "branches"}
_TIMES_OF_RETRY = ("initial", "max")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def groot(loaded: LoadedWorkflow) -> str:
    """Raises `InvalidWorkflow` where it is no tree, or holds what XML cannot."""
    spec = loaded.workflow.spec
    if not isinstance(spec, TreeSpec):
        problem = "Groot knows behaviour trees only."
        raise InvalidWorkflow([Problem(problem, "Draw a machine with `--format mermaid`.", 1, 1)])
    tree, problems = read_tree(loaded, spec)
    if tree is None or problems:
        raise InvalidWorkflow(problems)
    text = "\n".join(_lines(loaded, tree)) + "\n"
    if found := _NOT_XML.search(text):
        message = f"XML cannot hold the character U+{ord(found[0]):04X}."
        raise InvalidWorkflow([Problem(message, "Leave it out of the texts of the workflow.", 1, 1)])
    return text


def _lines(loaded: LoadedWorkflow, tree: written.Tree) -> Iterator[str]:
    document = loaded.document.data
    around = {key: value for key, value in document["spec"].items() if key not in ("planner", "tree", "subtrees")}
    head = {"BTCPP_format": "4", "main_tree_to_execute": "tree"}
    head |= {"_metadata": _json(document["metadata"]), "_spec": _json(around)}
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield _opened("root", head)
    yield '  <BehaviorTree ID="tree">'
    yield from _node(tree.root, 2)
    yield "  </BehaviorTree>"
    for name, subtree in tree.subtrees.items():
        yield from _subtree(name, subtree)
    yield "  <TreeNodesModel>"
    for known in KNOWN:
        if known.category:
            yield from _declared(known)
    yield f'    <Decorator ID="{BRANCH}">'
    yield '      <input_port name="when"/>'
    yield "    </Decorator>"
    yield "  </TreeNodesModel>"
    yield "</root>"


def _subtree(name: str, subtree: Subtree) -> Iterator[str]:
    given = {"ID": name} | ({"_params": " ".join(subtree.params)} if subtree.params else {})
    yield "  " + _opened("BehaviorTree", given)
    yield from _node(subtree.root, 2)
    yield "  </BehaviorTree>"


def _declared(known: Known) -> Iterator[str]:
    ports = [*known.texts.values(), *known.times.values(), *known.whole.values(), *known.coded.values()]
    yield f'    <{known.category} ID="{known.tag}">'
    yield from (f'      <input_port name="{port}"/>' for port in ports)
    yield f"    </{known.category}>"


def _node(node: TreeNode, depth: int) -> Iterator[str]:
    known = BY_KIND[node.kind]
    tag, attributes = known.tag, _attributes(node, known)
    if getattr(node.part, "memory", True) is False:
        tag = REACTIVE.get(node.kind, tag)
    space = "  " * depth
    if not node.children:
        yield f"{space}{_opened(tag, attributes)[:-1]}/>"
        return
    yield space + _opened(tag, attributes)
    for at, child in enumerate(node.children):
        if not node.branches:
            yield from _node(child, depth + 1)
            continue
        when = node.branches[at][1]
        yield f"{space}  " + _opened(BRANCH, {} if when is None else {"when": when})
        yield from _node(child, depth + 2)
        yield f"{space}  </{BRANCH}>"
    yield f"{space}</{tag}>"


def _attributes(node: TreeNode, known: Known) -> dict[str, str]:
    given: dict[str, Any] = node.part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_BELOW)
    found = {"name": given["name"]} if given.get("name") is not None else {}
    if isinstance(node.part, written.Parallel):
        found |= _thresholds(node, node.part)
    if node.kind == "conditional_selector" and not getattr(node.part, "memory", True):
        found["memory"] = "false"
    for option, attribute in (*known.texts.items(), *known.times.items(), *known.whole.items()):
        if given.get(option) is not None:
            found[attribute] = str(given[option])
    for option, attribute in known.coded.items():
        if option in given and (given[option] is not None or option == "input"):
            value = _timed(given[option]) if option == "retry" else given[option]
            found[attribute] = _json(value)
    return found


def _thresholds(node: TreeNode, part: written.Parallel) -> dict[str, str]:
    """In numbers, as Groot has them; ours is what follows where none is said."""
    count = len(node.children)
    success = {"all": count, "any": 1}.get(str(part.success)) or int(part.success)
    failure = count - success + 1 if part.failure is None else part.failure
    return {"success_count": ALL if part.success == "all" else str(success), "failure_count": str(failure)}


def _timed(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: f"{value}ms" if key in _TIMES_OF_RETRY and value is not None else value for key, value in rule.items()}


def _opened(tag: str, attributes: dict[str, str]) -> str:
    return f"<{tag}" + "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items()) + ">"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
