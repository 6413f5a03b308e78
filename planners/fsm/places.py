"""Where in a machine a run can be, asked without running it: for moving a run to another version of its workflow.

A place is what an outcome's key names (`review/2/lint`; with a `!`, the time-out of that state), or what the program
remembers something about (see `turn` for the marks).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from planners.fsm.table import FsmState, Machine

_UNDOING = "u:"  # before the place of a state that may have to be undone


def standing(memory: Mapping[str, Any]) -> Iterator[str]:
    """The places that a run is in the middle of. Outputs and counts of what is behind it are no such places."""
    for key, value in memory.items():
        match key[0], key[1:]:
            case "@", path:
                yield f"{path}/{value}"
            case "+" | "*" | ".", place:
                yield place
            case "u", number if number:
                yield f"{_UNDOING}{value['of']}"
            case "!", _:
                yield key  # it is being undone: nothing has such a place


def kind_at(machine: Machine, place: str) -> str | None:
    if place.startswith(_UNDOING):
        done = _at(machine, place.removeprefix(_UNDOING))
        return "compensation" if isinstance(done, FsmState) and done.compensation is not None else None
    found = _at(machine, place.removesuffix("!"))
    if found is None or isinstance(found, Machine):
        return None if found is None else "machine"
    if found.wait is not None and found.wait.signal is not None:
        return "signal"
    return found.kind or "end"


def _at(machine: Machine, place: str) -> FsmState | Machine | None:
    """A state, or the machine inside of one that stands for a branch, an item or an iteration."""
    if place in machine.states:
        return machine.states[place]
    parts = place.split("/")
    for at in range(0, len(parts), 2):
        state = machine.states.get(parts[at])
        if state is None or at + 1 == len(parts):
            return state
        body = state.body(parts[at + 1])
        if body is None:
            return None
        machine = body
    return machine.states.get("") or machine


def sets_variable(machine: Machine, name: str) -> bool:
    """Whether any of its states, or of those inside of them, sets it."""
    rest = [machine]
    while rest:
        for state in rest.pop().states.values():
            if any(name == var for var, _ in state.vars):
                return True
            if state.fan is not None:
                rest += state.fan.bodies.values()
            if state.loop is not None:
                rest.append(state.loop.body)
    return False
