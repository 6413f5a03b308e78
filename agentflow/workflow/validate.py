"""The rules of a state machine, one function each: all faults at once, each in its place.

Works on a loaded workflow; says nothing about conditions and templates, which are the planner's. A state
whose target is misspelt is judged as if it were spelt right, so one slip gives one problem.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.model import State
from agentflow.workflow.source_map import Document, Path, path_text
from agentflow.workflow.suggest import closest, did_you_mean

_STATES: Path = ("spec", "fsm", "states")


class _Machine:
    """The graph of a definition, with misspelt targets already understood."""

    def __init__(self, loaded: LoadedWorkflow) -> None:
        fsm = loaded.workflow.machine
        self.document: Document = loaded.document
        self.states = fsm.states
        self._guesses: dict[str, str | None] = {}
        self.initial = self.meant(fsm.initial_state)
        self.final = {name for target in fsm.final_states if (name := self.meant(target))}
        # A target nobody can guess may lead anywhere, also to an end.
        self.leads_astray = {name for name in self.states if None in self.targets(name)}
        self.ends_unknown = len(self.final) < len(set(fsm.final_states))

    def meant(self, target: str) -> str | None:
        if target in self.states:
            return target
        # A guess costs time for each state there is, so a hostile definition gets no more of them than are shown.
        if target not in self._guesses and len(self._guesses) < limits.PROBLEMS_SHOWN_MAX:
            self._guesses[target] = closest(target, self.states)
        return self._guesses.get(target)

    def targets(self, name: str) -> list[str | None]:
        state = self.states[name]
        written = [state.on_success, state.on_error, *(transition.to for transition in state.transitions)]
        return [self.meant(target) for target in written if target is not None]

    @cached_property
    def edges(self) -> dict[str, list[str]]:
        return {name: [target for target in self.targets(name) if target] for name in self.states}

    def at_key(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self.document.key_position(path), path_text(path))

    def at_value(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self.document.position(path), path_text(path))


def machine_problems(loaded: LoadedWorkflow, *, complete: bool = True) -> list[Problem]:
    """Every fault of the machine. When the definition lost parts on the way (`complete=False`), only the
    faults that a missing part cannot have caused."""
    machine = _Machine(loaded)
    rules = [
        _unknown_targets(machine, loaded),
        _agent_and_tool(machine),
        _success_and_transitions(machine),
        _final_that_goes_on(machine),
        _transitions_never_taken(machine),
        _delays_that_shrink(machine),
    ]
    if complete:
        rules += [_no_step(machine), _no_way_on(machine), _unreachable(machine), _no_end(machine)]
    return [problem for rule in rules for problem in islice(rule, limits.PROBLEMS_SHOWN_MAX)]


def _unknown_targets(machine: _Machine, loaded: LoadedWorkflow) -> Iterator[Problem]:
    fsm = loaded.workflow.machine
    named: list[tuple[Path, str | None]] = [(("spec", "fsm", "initial_state"), fsm.initial_state)]
    named += [(("spec", "fsm", "final_states", at), name) for at, name in enumerate(fsm.final_states)]
    for name, state in fsm.states.items():
        named += [((*_STATES, name, "on_success"), state.on_success), ((*_STATES, name, "on_error"), state.on_error)]
        named += [
            ((*_STATES, name, "transitions", at, "to"), transition.to)
            for at, transition in enumerate(state.transitions)
        ]
    for path, target in named:
        if target is not None and target not in machine.states:
            hint = did_you_mean(target, machine.states, kind="states")
            yield machine.at_value(path, f"There is no state `{target}`.", hint)


def _agent_and_tool(machine: _Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if state.agent is not None and state.tool is not None:
            path = (*_STATES, name, "tool")
            yield machine.at_key(path, f"State `{name}` has both an agent and a tool.", "Keep one of them.")


def _success_and_transitions(machine: _Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if state.on_success is not None and state.transitions:
            yield machine.at_key(
                (*_STATES, name, "on_success"),
                f"State `{name}` has both on_success and transitions.",
                "Make the on_success target the last transition, without a condition.",
            )


def _final_that_goes_on(machine: _Machine) -> Iterator[Problem]:
    for name in machine.states:
        state = machine.states[name]
        if name not in machine.final:
            continue
        for key in ("on_success", "transitions"):
            if getattr(state, key):
                hint = "Remove it, or take the state out of final_states."
                yield machine.at_key((*_STATES, name, key), f"Final state `{name}` cannot go on by {key}.", hint)


def _transitions_never_taken(machine: _Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        for at, transition in enumerate(state.transitions[:-1]):
            if transition.condition is None:
                yield machine.at_value(
                    (*_STATES, name, "transitions", at),
                    f"The transitions of `{name}` after this one can never be taken: it has no condition.",
                    "Give it a condition, or make it the last.",
                )
                break


def _delays_that_shrink(machine: _Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if state.retry is not None and state.retry.max is not None and state.retry.max < state.retry.initial:
            path = (*_STATES, name, "retry", "max")
            yield machine.at_value(path, "The longest delay is shorter than the first.", "Raise max or lower initial.")


def _no_step(machine: _Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if state.has_step:
            continue
        if name not in machine.final and not machine.ends_unknown:
            hint = "Name the agent or the tool that does the work, or list the state in final_states."
            yield machine.at_key((*_STATES, name), f"State `{name}` has neither an agent nor a tool.", hint)
        elif idle := _first_set(state, ("input", "output", "timeout", "retry", "on_error")):
            hint = f"Add an agent or a tool, or remove {idle}."
            yield machine.at_key((*_STATES, name, idle), f"State `{name}` has {idle} but nothing to do.", hint)


def _first_set(state: State, keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if key in state.model_fields_set), None)


def _no_way_on(machine: _Machine) -> Iterator[Problem]:
    if machine.ends_unknown:
        return
    for name, state in machine.states.items():
        if name not in machine.final and state.on_success is None and not state.transitions:
            hint = "Give it on_success or transitions, or list it in final_states."
            yield machine.at_key((*_STATES, name), f"State `{name}` has no way on.", hint)


def _unreachable(machine: _Machine) -> Iterator[Problem]:
    if machine.initial is None or machine.leads_astray:
        return
    reached = _spread({machine.initial}, machine.edges)
    for name in machine.states:
        if name not in reached:
            hint = "Let a state lead to it, or remove it."
            yield machine.at_key((*_STATES, name), f"State `{name}` can never be reached.", hint)


def _no_end(machine: _Machine) -> Iterator[Problem]:
    if machine.ends_unknown:
        return
    backwards: dict[str, list[str]] = {name: [] for name in machine.states}
    for name, targets in machine.edges.items():
        for target in targets:
            backwards[target].append(name)
    ending = _spread(machine.final | machine.leads_astray, backwards)
    for name, state in machine.states.items():
        goes_on = state.on_success is not None or state.transitions
        if name not in ending and goes_on:
            hint = "Lead it, or a state after it, to one of final_states."
            yield machine.at_key((*_STATES, name), f"From state `{name}` no final state can be reached.", hint)


def _spread(start: set[str], edges: dict[str, list[str]]) -> set[str]:
    """Everything that can be reached from `start`, itself included."""
    reached, frontier = set(start), list(start)
    while frontier:
        for target in edges[frontier.pop()]:
            if target not in reached:
                reached.add(target)
                frontier.append(target)
    return reached
