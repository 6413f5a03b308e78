"""The static plan of a state machine: its states, the ways between them, and how often each step can run.

A step is sure to run when every way from the initial state to an end leads through it, and runs once at most
unless it lies on a circle.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.workflow.model import Fsm, State
from planners.plan import Plan, PlanEdge, PlanNode, PlanShape, PlanStep, StepCount, make_plan

_END = ""  # no state has an empty name
_Graph = Mapping[str, Sequence[str]]


def machine_plan(fsm: Fsm) -> Plan:
    nodes = [_plan_node(name, state) for name, state in fsm.states.items()]
    edges = [edge for name, state in fsm.states.items() for edge in _edges(name, state)]
    return make_plan("fsm", nodes, edges, _shape(fsm))


def _plan_node(name: str, state: State) -> PlanNode:
    if not state.has_step:
        return PlanNode(name, "end", name)
    timeout_ms = limits.STEP_TIMEOUT_MS_DEFAULT if state.timeout is None else state.timeout
    attempts = 1 if state.retry is None else state.retry.max_attempts
    step = PlanStep(name, state.agent or TOOLS_AGENT, timeout_ms, attempts, state.tool)
    return PlanNode(name, "step", name, step)


def _edges(name: str, state: State) -> Iterator[PlanEdge]:
    if state.on_success is not None:
        yield PlanEdge(name, state.on_success, "next")
    for transition in state.transitions:
        yield PlanEdge(name, transition.to, "next", transition.condition or "")
    if state.on_error is not None:
        yield PlanEdge(name, state.on_error, "error")


def _shape(fsm: Fsm) -> PlanShape:
    initial, states = fsm.initial_state, fsm.states
    graph = {
        name: [edge.target for edge in _edges(name, state)] + ([_END] if name in fsm.final_states else [])
        for name, state in states.items()
    } | {_END: []}
    order = _postorder(initial, graph)
    sure = _sure(initial, graph, order)
    parts = _circles(graph, order)
    weights = {name: int(name != _END and states[name].has_step) for name in graph}
    steps = [
        StepCount(name, int(name in sure), None if len(parts[name]) > 1 or name in graph[name] else 1)
        for name, state in states.items()
        if state.has_step
    ]
    return PlanShape(_shortest(initial, graph, weights), _longest(graph, order, parts, weights), tuple(steps))


def _postorder(initial: str, graph: _Graph) -> list[str]:
    """What can be reached, each state after those it leads to as far as circles allow."""
    order, seen = [], {initial}
    stack = [(initial, iter(graph[initial]))]
    while stack:
        name, rest = stack[-1]
        target = next((target for target in rest if target not in seen), None)
        if target is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(graph[target])))
    return order


def _sure(initial: str, graph: _Graph, order: Sequence[str]) -> set[str]:
    """The states that every way to an end leads through: the dominators of the end (Cooper, Harvey, Kennedy)."""
    rank = {name: at for at, name in enumerate(order)}
    before: dict[str, list[str]] = {name: [] for name in order}
    for name in order:
        for target in graph[name]:
            before[target].append(name)
    above = {initial: initial}
    changed = True
    while changed:
        changed = False
        for name in reversed(order[:-1]):
            known = [other for other in before[name] if other in above]
            found = known[0]
            for other in known[1:]:
                found = _meeting(found, other, above, rank)
            if above.get(name) != found:
                above[name], changed = found, True
    sure, name = set(), _END if _END in above else initial
    while name != initial:
        name = above[name]
        sure.add(name)
    return sure


def _meeting(one: str, other: str, above: Mapping[str, str], rank: Mapping[str, int]) -> str:
    """Where the ways up from two states meet."""
    while one != other:
        if rank[one] < rank[other]:
            one = above[one]
        else:
            other = above[other]
    return one


def _circles(graph: _Graph, order: Sequence[str]) -> dict[str, list[str]]:
    """For each state, the states that can be reached from it and lead back to it, itself included."""
    backwards: dict[str, list[str]] = {name: [] for name in graph}
    for name in order:
        for target in graph[name]:
            backwards[target].append(name)
    parts: dict[str, list[str]] = {}
    for root in reversed(order):
        if root in parts:
            continue
        part: list[str] = []
        rest = [root]
        parts[root] = part
        while rest:
            name = rest.pop()
            part.append(name)
            for other in backwards[name]:
                if other not in parts:
                    parts[other] = part
                    rest.append(other)
    return {name: parts.get(name, [name]) for name in graph}


def _shortest(initial: str, graph: _Graph, weights: Mapping[str, int]) -> int:
    """The fewest steps with which an end is reached; a state without a step costs nothing."""
    found = {initial: weights[initial]}
    frontier = [initial]
    while frontier:
        following = []
        for name in frontier:
            for target in graph[name]:
                cost = found[name] + weights[target]
                if cost < found.get(target, cost + 1):
                    found[target] = cost
                    following.append(target)
        frontier = following
    return found.get(_END, 0)


def _longest(
    graph: _Graph, order: Sequence[str], parts: Mapping[str, list[str]], weights: Mapping[str, int]
) -> int | None:
    longest: dict[str, int] = {}
    for name in order:
        if (len(parts[name]) > 1 or name in graph[name]) and _any_step(parts[name], weights):
            return None
        longest[name] = weights[name] + max((longest.get(target, 0) for target in graph[name]), default=0)
    return longest[order[-1]]


def _any_step(names: Iterable[str], weights: Mapping[str, int]) -> bool:
    return any(weights[name] for name in names)
