"""How every node of a tree stands, read from what the run remembers: for pictures, histories and breakpoints.

Pure: the memory of a run (or what one event changed in it) in, words out. The memory after any event is a fold
over the events before, so the status of every node is known for every past tick.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from agentflow.execution.events import Event, ProgramMoved, VarsUpdated
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


class TickChange(msgspec.Struct, frozen=True):
    """What one event changed: the status of nodes, and variables. `version` is the event's."""

    version: int
    at_ms: int
    nodes: dict[str, NodeStatus]
    vars: dict[str, Any]


def ticks(events: Iterable[tuple[int, Event]]) -> Iterator[TickChange]:
    """Every tick of a tree, and every change of its variables from outside, from the events of an execution."""
    for version, event in events:
        if isinstance(event, ProgramMoved):
            changed = status_changes(event.memory, event.forgot)
            yield TickChange(version, event.at_ms, changed, event.vars)
        elif isinstance(event, VarsUpdated):
            yield TickChange(version, event.at_ms, {}, event.vars)


def after(changes: Iterable[TickChange]) -> TickChange | None:
    """How everything stood after the last of these: nodes that are not named had not begun. None: before any."""
    nodes: dict[str, NodeStatus] = {}
    known: dict[str, Any] = {}
    last = None
    for last in changes:
        nodes |= last.nodes
        known |= last.vars
    return None if last is None else TickChange(last.version, last.at_ms, nodes, known)


def _word(value: Any) -> NodeStatus:
    if value is None:
        return "idle"
    return _WORDS[value if isinstance(value, str) else value[0]]
