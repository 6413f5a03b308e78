"""The graph of a machine, with misspelt targets already understood; and every machine of a workflow, outside in."""

from collections.abc import Iterator
from functools import cached_property

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.model import Body, Fsm
from agentflow.workflow.source_map import Document, Path, path_text
from agentflow.workflow.suggest import closest


class Machine:
    def __init__(self, document: Document, fsm: Fsm | Body, path: Path, *, has_timeout: bool = False) -> None:
        self.document = document
        self.path = path
        self.states = fsm.states or {}
        self.initial_state = fsm.initial_state
        self.final_states = fsm.final_states
        self.has_timeout = has_timeout  # a state around it has one
        self._guesses: dict[str, str | None] = {}
        self.initial = None if fsm.initial_state is None else self.meant(fsm.initial_state)
        self.final = {name for target in fsm.final_states if (name := self.meant(target))}
        # A target nobody can guess may lead anywhere, also to an end.
        self.leads_astray = {name for name in self.states if None in self.targets(name)}
        self.ends_unknown = len(self.final) < len(set(fsm.final_states))

    @property
    def is_top(self) -> bool:
        return self.path == ("spec", "fsm")

    def at(self, name: str) -> Path:
        return (*self.path, "states", name)

    def meant(self, target: str) -> str | None:
        if target in self.states:
            return target
        # A guess costs time for each state there is, so a hostile definition gets no more of them than are shown.
        if target not in self._guesses and len(self._guesses) < limits.PROBLEMS_SHOWN_MAX:
            self._guesses[target] = closest(target, self.states)
        return self._guesses.get(target)

    def targets(self, name: str) -> list[str | None]:
        state = self.states[name]
        written = [way.to for way in (*state.ways, *state.transitions)] + [route.to for route in state.error_routes]
        return [self.meant(target) for target in dict.fromkeys(written)]

    @cached_property
    def edges(self) -> dict[str, list[str]]:
        return {name: [target for target in self.targets(name) if target] for name in self.states}

    def cycles_without_bound(self) -> Iterator[list[str]]:
        """Cycles that pass no state with `max_visits`, none of them sharing a state with another."""
        free = {
            name: [target for target in targets if self.states[target].max_visits is None]
            for name, targets in self.edges.items()
            if self.states[name].max_visits is None
        }
        # Depth first without recursion: a target that is on the way already closes a cycle.
        done: set[str] = set()
        for start in free:
            way: list[str] = []
            on_way: set[str] = set()
            stack = [(start, iter(free[start]))] if start not in done else []
            if stack:
                way.append(start)
                on_way.add(start)
            while stack:
                name, targets = stack[-1]
                target = next((one for one in targets if one not in done), None)
                if target is None:
                    done.add(name)
                    stack.pop()
                    way.pop()
                    on_way.discard(name)
                elif target in on_way:
                    yield way[way.index(target) :]
                    done |= on_way  # one slip, one problem
                else:
                    way.append(target)
                    on_way.add(target)
                    stack.append((target, iter(free[target])))

    def at_key(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self.document.key_position(path), path_text(path))

    def at_value(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self.document.position(path), path_text(path))


def machines(loaded: LoadedWorkflow) -> Iterator[Machine]:
    rest = [Machine(loaded.document, loaded.workflow.machine, ("spec", "fsm"))]
    while rest:
        machine = rest.pop(0)
        yield machine
        for name, state in machine.states.items():
            has_timeout = machine.has_timeout or state.timeout is not None
            rest += [
                Machine(loaded.document, body, (*machine.at(name), *below), has_timeout=has_timeout)
                for below, _, body in state.bodies()
                if body.states is not None
            ]


def spread(start: set[str], edges: dict[str, list[str]]) -> set[str]:
    """Everything that can be reached from `start`, itself included."""
    reached, frontier = set(start), list(start)
    while frontier:
        for target in edges[frontier.pop()]:
            if target not in reached:
                reached.add(target)
                frontier.append(target)
    return reached
