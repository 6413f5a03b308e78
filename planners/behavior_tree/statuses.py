"""How every node of a tree stands, read from what the run remembers: for pictures, histories and breakpoints.

Pure: the memory of a run (or what one event changed in it) in, words out. The memory after any event is a fold
over the events before, so the status of every node is known for every past tick.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from planners.behavior_tree.node import Node
from planners.behavior_tree.program import walk
from planners.behavior_tree.result import FAILED, HALTED, RUNNING, SUCCEEDED

NodeStatus = Literal["idle", "running", "succeeded", "failed", "halted"]
_WORDS: dict[str, NodeStatus] = {RUNNING: "running", SUCCEEDED: "succeeded", FAILED: "failed", HALTED: "halted"}


def statuses(root: Node, memory: Mapping[str, Any]) -> dict[str, NodeStatus]:
    """The status of every node by its path, in the order of the text."""
    return {node.path: _word(memory.get(node.path)) for node in walk(root)}


def status_changes(memory: Mapping[str, Any], forget: Iterable[str] = ()) -> dict[str, NodeStatus]:
    """What one tick changed, from what it remembered and forgot. A node may be told that stands as before."""
    changed: dict[str, NodeStatus] = {path: "idle" for path in forget if "#" not in path}
    return changed | {path: _word(value) for path, value in memory.items() if "#" not in path}


def _word(value: Any) -> NodeStatus:
    if value is None:
        return "idle"
    return _WORDS[value if isinstance(value, str) else value[0]]
