"""The static plan of a tree: its nodes, and bounds on how often each step can run.

The bounds follow from the structure alone. The least is what an execution that completes cannot do without; the
most counts every round of every loop, and is unknown below a node that looks again, because what is halted there
may begin anew as often as conditions change.
"""

from collections.abc import Iterator

from planners.behavior_tree.choice import ConditionalSelector
from planners.behavior_tree.condition import Condition, SetVars
from planners.behavior_tree.guard import Guard
from planners.behavior_tree.leaves import Action, Human, Signal, Subworkflow, Wait
from planners.behavior_tree.loops import Repeat, Retry
from planners.behavior_tree.node import Node
from planners.behavior_tree.ordered import Ordered
from planners.behavior_tree.parallel import Parallel
from planners.behavior_tree.result import FAILED, SUCCEEDED, Status
from planners.behavior_tree.subtree import Subtree
from planners.behavior_tree.timing import Cooldown, Timeout
from planners.behavior_tree.wrappers import ForceFailure, ForceSuccess, Invert
from planners.plan import Plan, PlanEdge, PlanNode, PlanShape, PlanStep, StepCount, add, make_plan, most, times

_KINDS: dict[type[Node], str] = {
    Parallel: "parallel",
    ConditionalSelector: "conditional_selector",
    Invert: "invert",
    ForceSuccess: "force_success",
    ForceFailure: "force_failure",
    Retry: "retry",
    Repeat: "repeat",
    Timeout: "timeout",
    Cooldown: "cooldown",
    Guard: "guard",
    Condition: "condition",
    SetVars: "set",
    Action: "action",
    Wait: "wait",
    Signal: "signal",
    Human: "human",
    Subworkflow: "subworkflow",
    Subtree: "subtree",
}
# More steps than any execution has: what cannot happen costs as much.
_NEVER = 10**9


def tree_plan(root: Node) -> Plan:
    nodes = list(_walk(root))
    edges = [edge for node in nodes for edge in _edges(node)]
    return make_plan("behavior_tree", [_plan_node(node) for node in nodes], edges, _shape(root))


def kind_of(node: Node) -> str:
    if isinstance(node, Ordered):
        return "sequence" if node.decides == FAILED else "selector"
    return _KINDS[type(node)]


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _plan_node(node: Node) -> PlanNode:
    step = None
    if isinstance(node, Action):
        step = PlanStep(node.name, node.agent, node.timeout_ms, node.retry.max_attempts, node.tool)
    return PlanNode(node.path, kind_of(node), _label(node), step)


def _label(node: Node) -> str:
    match node:
        case Action():
            return node.name
        case Condition():
            return node.condition.text
        case Guard():
            return f"guard {node.condition.text}"
        case Parallel():
            return f"parallel {node.success} of {len(node.children)}"
        case Retry():
            return f"retry up to {node.attempts}"
        case Repeat():
            return f"repeat {node.times}" if node.until is None else f"repeat until {node.until.text}"
        case Timeout():
            return f"timeout {node.after_ms} ms"
        case Cooldown():
            return f"cooldown {node.for_ms} ms"
        case Wait():
            return "wait until a moment" if node.for_ms is None else f"wait {node.for_ms} ms"
        case Signal():
            return f"signal {node.signal}"
        case Subworkflow():
            return f"{node.workflow} {node.version}"
        case Subtree():
            return node.prefix.removesuffix("/")
    looks = getattr(node, "memory", True) is False
    return f"{kind_of(node)} without memory" if looks else kind_of(node)


def _edges(node: Node) -> Iterator[PlanEdge]:
    for at, child in enumerate(node.children):
        label = ""
        if isinstance(node, ConditionalSelector):
            condition = node.conditions[at]
            label = "else" if condition is None else condition.text
        yield PlanEdge(node.path, child.path, "child", label)


def _shape(root: Node) -> PlanShape:
    counts: list[StepCount] = []
    _count(root, SUCCEEDED, 1, 1, counts)
    return PlanShape(_least(root, SUCCEEDED), _most(root), tuple(counts))


def _count(node: Node, ends: Status | None, least: int, most_: int | None, counts: list[StepCount]) -> None:
    """Bounds for the steps at and below a node that is entered `least` to `most_` times, and then ends so (None:
    however it likes)."""
    if isinstance(node, Action):
        # Its input may be impossible to make, so only success says for sure that there was a step.
        counts.append(StepCount(node.name, least if ends == SUCCEEDED else 0, most_))
        return
    if getattr(node, "memory", True) is False:
        most_ = None
    most_ = times(most_, _rounds(node))
    for at, child in enumerate(node.children):
        child_ends, factor = _needed(node, at, ends)
        _count(child, child_ends, least * factor, most_, counts)


def _rounds(node: Node) -> int:
    return node.attempts if isinstance(node, Retry) else node.times if isinstance(node, Repeat) else 1


def _needed(node: Node, at: int, ends: Status | None) -> tuple[Status | None, int]:
    """How a child must end, and how often it must at least be entered, for its parent to end so."""
    alone = len(node.children) == 1
    match node:
        case Ordered():
            if ends is not None and (ends != node.decides or alone):
                return ends, 1
            return None, int(at == 0)
        case Parallel():
            return (SUCCEEDED, 1) if ends == SUCCEEDED and node.success == len(node.children) else (None, 0)
        case ConditionalSelector():
            return (SUCCEEDED, 1) if ends == SUCCEEDED and alone else (None, 0)
        case Invert():
            return {SUCCEEDED: FAILED, FAILED: SUCCEEDED}.get(ends or ""), 1  # type: ignore[return-value]
        case ForceSuccess() | ForceFailure():
            return None, 1
        case Retry():
            return ends, node.attempts if ends == FAILED else 1
        case Repeat():
            return (SUCCEEDED, 1 if node.until else node.times) if ends == SUCCEEDED else (None, 1)
    return (SUCCEEDED, 1) if ends == SUCCEEDED else (None, int(isinstance(node, Timeout)))


def _least(node: Node, ends: Status) -> int:
    """The fewest steps with which a node can end so."""
    match node:
        case Action():
            return int(ends == SUCCEEDED)
        case Ordered() if ends != node.decides:
            return min(_NEVER, sum(_least(child, ends) for child in node.children))
        case Ordered():
            return _fewest_until(node.children, ends)
        case Parallel():
            if ends == FAILED:
                return 0
            return min(_NEVER, sum(sorted(_least(child, ends) for child in node.children)[: node.success]))
        case ConditionalSelector():
            return 0 if ends == FAILED else min(_least(child, ends) for child in node.children)
        case Invert():
            return _least(node.children[0], FAILED if ends == SUCCEEDED else SUCCEEDED)
        case ForceSuccess() | ForceFailure():
            forced = SUCCEEDED if isinstance(node, ForceSuccess) else FAILED
            return min(_least(node.children[0], either) for either in _BOTH) if ends == forced else _NEVER
        case Retry():
            return min(_NEVER, _least(node.children[0], ends) * (node.attempts if ends == FAILED else 1))
        case Repeat() if ends == SUCCEEDED:
            return min(_NEVER, _least(node.children[0], ends) * (1 if node.until else node.times))
    if ends == FAILED:
        return 0
    return _least(node.children[0], ends) if node.children else 0


_BOTH: tuple[Status, Status] = (SUCCEEDED, FAILED)


def _fewest_until(children: tuple[Node, ...], ends: Status) -> int:
    """The fewest steps until one child ends so and those before it did not."""
    fewest, before = _NEVER, 0
    for child in children:
        fewest = min(fewest, before + _least(child, ends))
        before = min(_NEVER, before + _least(child, SUCCEEDED if ends == FAILED else FAILED))
    return fewest


def _most(node: Node) -> int | None:
    """The most steps that one visit to a node can take; None where they have no bound."""
    if isinstance(node, Action):
        return 1
    below = [_most(child) for child in node.children]
    if getattr(node, "memory", True) is False:
        return None if any(count != 0 for count in below) else 0
    if isinstance(node, ConditionalSelector):
        return most(below)
    return times(add(*below), _rounds(node))
