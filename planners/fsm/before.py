"""Which states can come before each state of a machine, and so what `output` and `error` are there."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from agentflow.workflow.model import State
from planners.expressions.shapes import ANYTHING, Shape, record, shape_of

_UNKNOWN: Any = object()
_PARALLEL = record(results=ANYTHING, errors=ANYTHING)
_MAP = record(results=Shape("list<dyn>"), errors=Shape("list<dyn>"))
_UNDONE = record(undone=Shape("int"), not_undone=Shape("list<string>"))


class Before:
    def __init__(self, initial: str, states: Mapping[str, State], first: Shape | None, *, complete: bool) -> None:
        self._initial = initial
        self._states = states
        self._first = first
        self._by_success: Mapping[str, list[str]] = defaultdict(list)
        self._by_error: set[str] = set()
        for name, state in states.items():
            for way in state.ways:
                self._by_success[way.to].append(name)
            self._by_error |= {route.to for route in state.error_routes}
        self._pass_errors_on()
        # Where a way by error was lost or misspelt, any state may be meant: `error` is then no second problem.
        self._error_anywhere = not complete or not self._by_error <= states.keys()

    def _pass_errors_on(self) -> None:
        """A choice hands on the error that it was reached by."""
        rest = [name for name in self._by_error if name in self._states]
        while rest:
            state = self._states[rest.pop()]
            for way in state.ways if state.kind == "choice" else ():
                if way.to not in self._by_error:
                    self._by_error.add(way.to)
                    rest += [way.to] if way.to in self._states else []

    def has_error(self, name: str) -> bool:
        return name in self._by_error or self._error_anywhere

    def output_at(self, name: str) -> Shape | None:
        """What is known of the output of the state before; None where none comes before."""
        before, after_error = self._by_success[name], name in self._by_error
        if name == self._initial and not before and not after_error:
            return self._first
        if name == self._initial or after_error or not before:
            return ANYTHING
        known = [self._known(self._states[other]) for other in before]
        if any(one is _UNKNOWN or one != known[0] for one in known):
            return ANYTHING
        return self.output_of(self._states[before[0]])

    def _known(self, state: State) -> Any:
        """Equal for states whose outputs have the same shape."""
        if state.kind == "step" and "result" not in state.model_fields_set:
            return state.output
        return _UNKNOWN if state.kind in ("choice", "loop") else self.output_of(state)

    @classmethod
    def output_of(cls, state: State) -> Shape:
        return ANYTHING if "result" in state.model_fields_set else cls.raw_output_of(state)

    @staticmethod
    def raw_output_of(state: State) -> Shape:
        """What the work of a state gives back, before its `result` maps it."""
        match state.kind:
            case "parallel":
                return _PARALLEL
            case "map":
                return _MAP
            case "compensate":
                return _UNDONE
        return shape_of(state.output)
