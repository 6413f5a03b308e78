"""The rules of a state machine, one function each: all faults at once, each in its place.

Works on a loaded workflow; says nothing about conditions and templates, which are the planner's. A state whose
target is misspelt is judged as if it were spelt right, so one slip gives one problem. Nested machines are judged like
the one they stand in; what a single state may hold is in `state_rules`.
"""

from collections.abc import Iterator
from itertools import islice

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.graph import Machine, machines, spread
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.source_map import Path
from agentflow.workflow.state_rules import state_problems
from agentflow.workflow.suggest import did_you_mean

_CYCLE_SHOWN_MAX = 6


def machine_problems(loaded: LoadedWorkflow, *, complete: bool = True) -> list[Problem]:
    """Every fault of the machine. When the definition lost parts on the way (`complete=False`), only the
    faults that a missing part cannot have caused."""
    found = list(machines(loaded))
    problems: list[Problem] = []
    for machine in found:
        rules = [
            _unknown_targets(machine),
            _final_that_goes_on(machine),
            _transitions_never_taken(machine),
            state_problems(machine, loaded.workflow, complete=complete),
        ]
        if complete:
            rules += [_no_step(machine), _no_way_on(machine), _unreachable(machine), _no_end(machine)]
            if loaded.workflow.spec.timeout is None:
                rules.append(_waits_for_ever(machine))
        slips = [problem for rule in rules for problem in islice(rule, limits.PROBLEMS_SHOWN_MAX)]
        if complete and not slips and loaded.workflow.spec.timeout is None:
            # Only of a machine that is sound otherwise: a slip often closes a cycle that nobody meant.
            slips = list(islice(_unbounded_cycles(machine), limits.PROBLEMS_SHOWN_MAX))
        problems += slips
    return problems + list(islice(_names_used_twice(found), limits.PROBLEMS_SHOWN_MAX))


def _unknown_targets(machine: Machine) -> Iterator[Problem]:
    named: list[tuple[Path, str | None]] = [((*machine.path, "initial_state"), machine.initial_state)]
    named += [((*machine.path, "final_states", at), name) for at, name in enumerate(machine.final_states)]
    for name, state in machine.states.items():
        at = machine.at(name)
        named.append(((*at, "on_success"), state.on_success))
        if isinstance(state.on_error, str):
            named.append(((*at, "on_error"), state.on_error))
        else:
            named += [((*at, "on_error", number, "to"), route.to) for number, route in enumerate(state.on_error or ())]
        for key in ("transitions", "choice"):
            named += [((*at, key, number, "to"), way.to) for number, way in enumerate(getattr(state, key) or ())]
    for path, target in named:
        if target is not None and target not in machine.states:
            hint = did_you_mean(target, machine.states, kind="states")
            yield machine.at_value(path, f"There is no state `{target}`.", hint)


def _final_that_goes_on(machine: Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if name not in machine.final:
            continue
        for key in ("on_success", "transitions", "choice"):
            if getattr(state, key):
                hint = "Remove it, or take the state out of final_states."
                yield machine.at_key((*machine.at(name), key), f"Final state `{name}` cannot go on by {key}.", hint)


def _transitions_never_taken(machine: Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        key = "choice" if state.choice else "transitions"
        written = list(enumerate(state.choice or state.transitions))
        ordered = sorted(written, key=lambda one: -one[1].priority)
        for at, way in ordered[:-1]:
            if way.condition is None:
                yield machine.at_value(
                    (*machine.at(name), key, at),
                    f"The transitions of `{name}` after this one can never be taken: it has no condition.",
                    "Give it a condition, or make it the last.",
                )
                break


def _no_step(machine: Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        if state.kind is not None:
            continue
        if name not in machine.final and not machine.ends_unknown:
            hint = "Name the agent or the tool that does the work, or list the state in final_states."
            yield machine.at_key(machine.at(name), f"State `{name}` has neither an agent nor a tool.", hint)
            continue
        for idle in ("input", "output", "timeout", "retry", "on_error", "result", "vars", "compensation"):
            if idle in state.model_fields_set:
                hint = f"Add an agent or a tool, or remove {idle}."
                yield machine.at_key((*machine.at(name), idle), f"State `{name}` has {idle} but nothing to do.", hint)
                break


def _no_way_on(machine: Machine) -> Iterator[Problem]:
    if machine.ends_unknown:
        return
    for name, state in machine.states.items():
        if name not in machine.final and not state.ways and not state.ends:
            hint = "Give it on_success or transitions, or list it in final_states."
            yield machine.at_key(machine.at(name), f"State `{name}` has no way on.", hint)


def _unreachable(machine: Machine) -> Iterator[Problem]:
    if machine.initial is None or machine.leads_astray:
        return
    reached = spread({machine.initial}, machine.edges)
    for name in machine.states:
        if name not in reached:
            hint = "Let a state lead to it, or remove it."
            yield machine.at_key(machine.at(name), f"State `{name}` can never be reached.", hint)


def _no_end(machine: Machine) -> Iterator[Problem]:
    if machine.ends_unknown:
        return
    backwards: dict[str, list[str]] = {name: [] for name in machine.states}
    for name, targets in machine.edges.items():
        for target in targets:
            backwards[target].append(name)
    ends = {name for name, state in machine.states.items() if state.ends}
    ending = spread(machine.final | machine.leads_astray | ends, backwards)
    for name, state in machine.states.items():
        if name not in ending and state.ways:
            hint = "Lead it, or a state after it, to one of final_states."
            yield machine.at_key(machine.at(name), f"From state `{name}` no final state can be reached.", hint)


def _unbounded_cycles(machine: Machine) -> Iterator[Problem]:
    """A cycle must pass a state that may be entered only so often; each one that does not is told once."""
    for cycle in machine.cycles_without_bound():
        shown = cycle if len(cycle) <= _CYCLE_SHOWN_MAX else [*cycle[: _CYCLE_SHOWN_MAX - 1], "…"]
        way = " → ".join(f"`{name}`" for name in [*shown, cycle[0]])
        yield machine.at_key(
            machine.at(cycle[0]),
            f"The cycle {way} has no bound.",
            "Give one of its states max_visits, or the workflow a timeout.",
        )


def _waits_for_ever(machine: Machine) -> Iterator[Problem]:
    for name, state in machine.states.items():
        waits = state.kind in ("human", "subworkflow") or (state.wait is not None and state.wait.signal is not None)
        if waits and state.timeout is None and not machine.has_timeout:
            hint = "Give it a timeout, or the workflow one."
            yield machine.at_key(machine.at(name), f"State `{name}` may wait for ever.", hint)


def _names_used_twice(found: list[Machine]) -> Iterator[Problem]:
    """`steps.<name>` must mean one thing, also inside of nested machines."""
    seen: dict[str, Machine] = {}
    for machine in found:
        for name in machine.states:
            if name in seen:
                line, column = machine.document.key_position(seen[name].at(name))
                hint = f"It is used at {line}:{column} already; names are unique in a workflow."
                yield machine.at_key(machine.at(name), f"There is another state `{name}`.", hint)
            else:
                seen[name] = machine
