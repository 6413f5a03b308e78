"""The static plan of a state machine: its states, the ways between them, and how often each step can run.

A step is sure to run when every way from the initial state to an end leads through it, and runs once at most
unless it lies on a circle. What stands inside of a state (branches, items, iterations) is counted as part of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.workflow.model import Body, Fsm, State, Step
from planners.plan import Plan, PlanEdge, PlanNode, PlanShape, PlanStep, StepCount, add, make_plan, times

_END = ""  # no state has an empty name
_Graph = Mapping[str, Sequence[str]]


def machine_plan(fsm: Fsm) -> Plan:
    nodes: list[PlanNode] = []
    edges: list[PlanEdge] = []
    _draw(fsm, "", nodes, edges)
    return make_plan("fsm", nodes, edges, _shape(fsm))


def _draw(fsm: Fsm | Body, at: str, nodes: list[PlanNode], edges: list[PlanEdge]) -> None:
    """`at` is the place of a nested machine: `checks/tests/`."""
    for name, state in (fsm.states or {}).items():
        place = f"{at}{name}"
        kind = state.kind or "end"
        nodes.append(PlanNode(place, kind, name, _plan_step(name, state) if kind == "step" else None))
        edges += [
            PlanEdge(place, f"{at}{edge.target}", edge.kind, edge.label) for edge in _edges(name, state)
        ]  # fmt: skip
        if state.compensation is not None:
            undo = f"{name}.compensation"
            nodes.append(PlanNode(f"{at}{undo}", "step", undo, _plan_step(undo, state.compensation)))
            edges.append(PlanEdge(place, f"{at}{undo}", "error", "compensation"))
        for _, inner, body in state.bodies():
            slot = f"{place}/{inner}"
            if body.states is None:
                label = f"{name}.{inner}"
                nodes.append(PlanNode(slot, "step", label, _plan_step(label, body)))
                edges.append(PlanEdge(place, slot, "child"))
            else:
                edges.append(PlanEdge(place, f"{slot}/{body.initial_state}", "child", inner))
                _draw(body, f"{slot}/", nodes, edges)


def _plan_step(name: str, step: Step) -> PlanStep:
    timeout_ms = limits.STEP_TIMEOUT_MS_DEFAULT if step.timeout is None else step.timeout
    attempts = 1 if step.retry is None else step.retry.max_attempts
    return PlanStep(name, step.agent or TOOLS_AGENT, timeout_ms, attempts, step.tool)


def _edges(name: str, state: State) -> Iterator[PlanEdge]:
    for way in sorted(state.ways, key=lambda way: -way.priority):
        yield PlanEdge(name, way.to, "next", way.condition or "")
    for route in state.error_routes:
        yield PlanEdge(name, route.to, "error", ", ".join(route.codes))


def _shape(fsm: Fsm | Body) -> PlanShape:
    initial, states = fsm.initial_state or "", fsm.states or {}
    graph = {
        name: [edge.target for edge in _edges(name, state)] + ([_END] if name in fsm.final_states or state.ends else [])
        for name, state in states.items()
    } | {_END: []}
    order = _postorder(initial, graph)
    sure = _sure(initial, graph, order)
    parts = _circles(graph, order)
    units = {name: _unit(name, state) for name, state in states.items()} | {_END: PlanShape(0, 0, ())}
    steps: list[StepCount] = []
    most: dict[str, int | None] = {}
    for name, unit in units.items():
        visits = 1 if name == _END else _visits(states[name], is_circle=len(parts[name]) > 1 or name in graph[name])
        most[name] = _repeated(unit.max, visits)
        steps += [
            msgspec.structs.replace(one, min=one.min * int(name in sure), max=_repeated(one.max, visits))
            for one in unit.steps
        ]
    least = {name: unit.min for name, unit in units.items()}
    return PlanShape(_shortest(initial, graph, least), _longest(graph, order, parts, most), tuple(steps))


def _visits(state: State, *, is_circle: bool) -> int | None:
    return state.max_visits if is_circle else 1


def _repeated(count: int | None, visits: int | None) -> int | None:
    if count == 0:
        return 0
    return None if visits is None else times(count, visits)


def _unit(name: str, state: State) -> PlanShape:
    """What one visit of a state runs, with everything inside of it."""
    undo = () if state.compensation is None else (StepCount(f"{name}.compensation", 0, 1),)
    if state.kind == "step":
        return PlanShape(1, 1 + len(undo), (StepCount(name, 1, 1), *undo))
    inside = [
        _shape(body) if body.states is not None else PlanShape(1, 1, (StepCount(f"{name}.{inner}", 1, 1),))
        for _, inner, body in state.bodies()
    ]
    steps = [one for shape in inside for one in shape.steps]
    least, most = sum(shape.min for shape in inside), add(*(shape.max for shape in inside))
    if state.parallel is not None and state.parallel.join != "all":
        needed = 1 if state.parallel.join == "any" else int(state.parallel.join)
        least = sum(sorted(shape.min for shape in inside)[:needed])
        steps = [msgspec.structs.replace(one, min=0) for one in steps]
    elif state.map is not None or state.loop is not None:
        bound = None if state.loop is None else state.loop.max
        least, most = 0, _repeated(most, bound)
        steps = [StepCount(one.name, 0, _repeated(one.max, bound)) for one in steps]
    if state.error_routes:
        # It may go on without having begun all of it.
        least, steps = 0, [msgspec.structs.replace(one, min=0) for one in steps]
    return PlanShape(least, add(most, len(undo)), (*steps, *undo))


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
    graph: _Graph, order: Sequence[str], parts: Mapping[str, list[str]], most: Mapping[str, int | None]
) -> int | None:
    longest: dict[str, int] = {}
    for name in order:
        weight = most[name]
        if weight is None or (len(parts[name]) > 1 and _any_step(parts[name], most)):
            return None
        longest[name] = weight + max((longest.get(target, 0) for target in graph[name]), default=0)
    return longest[order[-1]]


def _any_step(names: Iterable[str], most: Mapping[str, int | None]) -> bool:
    return any(most[name] != 0 for name in names)
