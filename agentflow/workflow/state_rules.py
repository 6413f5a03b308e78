"""What a single state may hold: one kind, the keys that mean something for it, and bodies that can begin."""

from collections.abc import Iterator

from agentflow.errors import Problem
from agentflow.workflow.graph import Machine
from agentflow.workflow.model import State, Step, Workflow
from agentflow.workflow.source_map import Path, path_text

# Keys that say nothing about a state of that kind. `step` takes all of them.
_ONE_OF = "Keep one of them."
_MEANINGLESS: dict[str, tuple[str, ...]] = {
    "choice": ("input", "output", "result", "timeout", "retry", "compensation"),
    "wait": ("input", "retry"),
    "parallel": ("input", "output", "retry"),
    "map": ("input", "output", "retry"),
    "subworkflow": ("retry",),
    "human": ("retry",),
    "loop": ("input", "retry"),
    "compensate": ("input", "output", "timeout", "retry", "compensation"),
    "fail": ("input", "output", "result", "vars", "timeout", "retry", "on_success", "transitions", "compensation"),
    "succeed": ("input", "output", "result", "vars", "timeout", "retry", "on_success", "transitions", "compensation"),
}
_LOCALS_TAKEN = ("input", "output", "steps", "vars", "env", "workflow", "error", "index")


def state_problems(machine: Machine, workflow: Workflow, *, complete: bool) -> Iterator[Problem]:
    """`complete=False`: what seems to be missing may only have been lost, so nothing is said about that."""
    for name, state in machine.states.items():
        at = machine.at(name)
        yield from _kinds(machine, state, name, at)
        yield from _steps(machine, state, name, at)
        yield from _ways(machine, state, name, at)
        yield from _waits(machine, state, name, at)
        yield from _fans_and_loops(machine, state, at)
        yield from _children(machine, state, at, workflow)
        yield from _bodies(machine, state, at)
        if complete:
            yield from _missing(machine, state, name, at)


def _kinds(machine: Machine, state: State, name: str, at: Path) -> Iterator[Problem]:
    if len(state.kinds) > 1:
        words = [("agent" if state.agent is not None else "tool") if kind == "step" else kind for kind in state.kinds]
        yield machine.at_key((*at, words[1]), f"State `{name}` is both {words[0]} and {words[1]}.", _ONE_OF)
        return
    for key in _MEANINGLESS.get(state.kind or "", ()):
        if key in state.model_fields_set:
            message = f"State `{name}` is a {state.kind}: {key} means nothing to it."
            yield machine.at_key((*at, key), message, "Remove it.")
    if state.kind == "compensate" and not machine.is_top:
        hint = "Let the state outside fail, and compensate there."
        yield machine.at_key((*at, "compensate"), "Only the outermost machine can compensate.", hint)


def _steps(machine: Machine, state: State, name: str, at: Path) -> Iterator[Problem]:
    steps: list[tuple[Step, Path, str]] = [(state, at, f"State `{name}`")]
    if state.compensation is not None:
        steps.append((state.compensation, (*at, "compensation"), f"The compensation of `{name}`"))
    steps += [(body, (*at, *below), f"`{inner}` of `{name}`") for below, inner, body in state.bodies()]
    for step, path, what in steps:
        if step.agent is not None and step.tool is not None:
            yield machine.at_key((*path, "tool"), f"{what} has both an agent and a tool.", _ONE_OF)
        if step.retry is not None and step.retry.max is not None and step.retry.max < step.retry.initial:
            message = "The longest delay is shorter than the first."
            yield machine.at_value((*path, "retry", "max"), message, "Raise max or lower initial.")


def _ways(machine: Machine, state: State, name: str, at: Path) -> Iterator[Problem]:
    hint = "Make the on_success target the last transition, without a condition."
    if state.on_success is not None and state.transitions:
        yield machine.at_key((*at, "on_success"), f"State `{name}` has both on_success and transitions.", hint)
    for key in ("on_success", "transitions"):
        if state.choice and getattr(state, key):
            yield machine.at_key((*at, key), f"State `{name}` has both choice and {key}.", _ONE_OF)
    if not isinstance(state.on_error, str):
        for number, route in enumerate((state.on_error or ())[:-1]):
            if not route.codes:
                message = f"The error routes of `{name}` after this one can never be taken: it has no codes."
                yield machine.at_value((*at, "on_error", number), message, "Give it codes, or make it the last.")


def _waits(machine: Machine, state: State, name: str, at: Path) -> Iterator[Problem]:
    if state.wait is None:
        return
    forms = [form for form in ("duration", "until", "signal") if getattr(state.wait, form) is not None]
    if len(forms) > 1:
        message = f"State `{name}` waits for both {forms[0]} and {forms[1]}."
        yield machine.at_key((*at, "wait", forms[1]), message, _ONE_OF)
    if forms and "signal" not in forms and state.timeout is not None:
        message = f"State `{name}` waits for a moment that comes by itself."
        yield machine.at_key((*at, "timeout"), message, "Remove the timeout.")


def _fans_and_loops(machine: Machine, state: State, at: Path) -> Iterator[Problem]:
    if state.parallel is not None:
        join, count = state.parallel.join, len(state.parallel.branches)
        if isinstance(join, int) and join > count:
            message = f"{join} branches must succeed, but there are {count}."
            yield machine.at_value((*at, "parallel", "join"), message, "Lower join, or add branches.")
    inner = state.map or state.loop
    if inner is not None and inner.as_ in _LOCALS_TAKEN:
        message = f"`{inner.as_}` already means something in expressions."
        yield machine.at_value((*at, state.kind or "", "as"), message, "Choose another name.")


def _children(machine: Machine, state: State, at: Path, workflow: Workflow) -> Iterator[Problem]:
    if state.subworkflow is not None and state.subworkflow.name == workflow.metadata.name:
        message = f"Workflow `{workflow.metadata.name}` would start itself."
        yield machine.at_value((*at, "subworkflow", "name"), message, "Use a loop, or another workflow.")


def _bodies(machine: Machine, state: State, at: Path) -> Iterator[Problem]:
    for below, inner, body in state.bodies():
        path = (*at, *below)
        if body.states is not None and body.has_step:
            key = "agent" if body.agent is not None else "tool"
            yield machine.at_key((*path, key), f"`{inner}` is both a step and a machine.", _ONE_OF)
        for key in ("input", "output", "timeout", "retry"):
            if body.states is not None and not body.has_step and key in body.model_fields_set:
                message = f"`{inner}` is a machine: {key} means nothing to it."
                yield machine.at_key((*path, key), message, "Give it to a state inside.")


def _missing(machine: Machine, state: State, name: str, at: Path) -> Iterator[Problem]:
    """What is not there, or empty, although something cannot be done without it."""
    if state.on_error == ():
        path = (*at, "on_error")
        yield machine.at_value(path, f"`{path_text(path)}` is empty.", "Write at least one `{to: …}`.")
    if state.compensation is not None and not state.compensation.has_step:
        message = f"The compensation of `{name}` has neither an agent nor a tool."
        yield machine.at_key((*at, "compensation"), message, "Name the agent or the tool that undoes it.")
    wait, loop = state.wait, state.loop
    if wait is not None and wait.duration is None and wait.until is None and wait.signal is None:
        hint = "Write duration, until or signal."
        yield machine.at_key((*at, "wait"), f"State `{name}` does not say what it waits for.", hint)
    if loop is not None and loop.while_ is None and loop.for_ is None:
        hint = "Write `while` with a condition, or `for` with a list."
        yield machine.at_key((*at, "loop"), f"Loop `{name}` does not say how long it goes on.", hint)
    for below, inner, body in state.bodies():
        if body.states is None and not body.has_step:
            hint = "Name an agent or a tool, or write initial_state, final_states and states."
            yield machine.at_key((*at, *below), f"`{inner}` has nothing to do.", hint)
        elif body.states is not None and body.initial_state is None and not body.has_step:
            yield machine.at_key((*at, *below), f"`{inner}` has no `initial_state`.", "Add `initial_state: …`.")
