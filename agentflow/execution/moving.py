"""Whether a run can go on by another version of its workflow, and what that takes. Pure.

What a run is in the middle of must be there in the other version, and be of the same kind; what is behind it does not
matter. Variables that the version begins with and the run does not have are given their first values, unless the run
has some that the version does not know: then one may be the other by a new name, and somebody has to say so.
Asked by `decide`, and by the control plane for a look beforehand.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from agentflow.execution.events import Answered, StepScheduled, WorkflowRef
from agentflow.execution.messages import Move
from agentflow.execution.program import Adoptive, Program
from agentflow.execution.state import ExecutionState, Status, key_of

Verdict = Literal["compatible", "needs_mapping", "refused"]


class Misfit(msgspec.Struct, frozen=True):
    """One thing that is in the way: at a `node`, or under a `key` such as `vars.total`."""

    why: str
    node: str = ""
    key: str = ""
    can_be_mapped: bool = False


class Adoption(msgspec.Struct, frozen=True):
    """What stands in the way, or what changes with the move."""

    misfits: tuple[Misfit, ...] = ()
    vars: dict[str, Any] = {}

    @property
    def verdict(self) -> Verdict:
        if not self.misfits:
            return "compatible"
        return "needs_mapping" if all(one.can_be_mapped for one in self.misfits) else "refused"


def adoption(state: ExecutionState, program: Program, move: Move) -> Adoption:
    """`program` is that of the version the run would be moved to."""
    misfits = [*_lifecycle(state, move.workflow), *_tools(state, move.workflow)]
    if not isinstance(program, Adoptive):
        return Adoption((Misfit("No run can be moved to a version with this planner."),))
    misfits += _places(state, program, move.kinds)
    changed, unclear = _variables(state.vars, program, move)
    return Adoption((*misfits, *unclear), changed)


def kinds(state: ExecutionState, program: Program) -> dict[str, str]:
    """What stands, in the version that the run follows now, where it stands."""
    if not isinstance(program, Adoptive):
        return {}
    found = {place: program.kind_at(place) for place in {*open_keys(state), *program.standing(_memory(state))}}
    return {place: kind for place, kind in found.items() if kind is not None}


def open_keys(state: ExecutionState) -> Iterator[str]:
    """Every key under which the program will hear something, or would if the run were retried."""
    broken = state.broken
    steps, children, tasks = _steps(state), list(state.children.values()), list(state.tasks.values())
    timers, awaited = [*state.timers], [*state.awaited]
    if broken is not None:
        children, tasks = [*children, *broken.children], [*tasks, *broken.tasks]
        timers, awaited = [*timers, *broken.timers], [*awaited, *broken.awaited]
        yield from (one.key for one in _answered(broken.answered, *broken.told))
        if broken.again is not None:
            yield key_of(broken.again.path)
    for path in (*(it.path for it in steps), *(it.path for it in children), *(it.path for it in tasks)):
        yield key_of(path)
    yield from timers
    yield from awaited
    yield from (one.key for one in state.held.values())


def _answered(*answered: Answered | None) -> Iterator[Answered]:
    yield from (one for one in answered if one is not None)


def _steps(state: ExecutionState) -> list[StepScheduled]:
    broken = () if state.broken is None else state.broken.steps
    waiting = (waiting.last for waiting in state.waiting.values())
    doubtful = (doubt.step for doubt in state.doubts.values())
    return [*state.in_flight.values(), *waiting, *doubtful, *broken]


def _memory(state: ExecutionState) -> dict[str, Any]:
    return dict(state.memory.items())


def _lifecycle(state: ExecutionState, to: WorkflowRef) -> Iterator[Misfit]:
    if state.workflow is None or state.workflow.name != to.name:
        yield Misfit(f"It is not an execution of `{to.name}`.")
    elif state.ended and state.status is not Status.FAILED:
        yield Misfit(f"It is {state.status}: nothing of it is left to do.")
    elif state.ending is not None:
        yield Misfit("It is undoing its work, and must do that the way it was done.")


def _tools(state: ExecutionState, to: WorkflowRef) -> Iterator[Misfit]:
    pinned = {} if state.workflow is None else state.workflow.tools
    for step in _steps(state):
        if step.tool is not None and pinned.get(step.tool) != to.tools.get(step.tool):
            why = f"Its step uses `{step.tool}`, which the version has in another form: wait until it is over."
            yield Misfit(why, node=key_of(step.path), key=f"tools.{step.tool}")


def _places(state: ExecutionState, program: Adoptive, before: Mapping[str, str]) -> Iterator[Misfit]:
    for place in sorted({*open_keys(state), *program.standing(_memory(state))}):
        was, now = before.get(place), program.kind_at(place)
        if now is None:
            yield Misfit("The run is there, and the version has no such place.", node=place)
        elif was is not None and was != now:
            yield Misfit(f"The run is there; it is of the kind {now} in the version, and was {was}.", node=place)


def _variables(has: Mapping[str, Any], program: Adoptive, move: Move) -> tuple[dict[str, Any], list[Misfit]]:
    given = {new: has[old] for new, old in move.renamed.items() if old in has} | move.vars
    misfits = [
        Misfit("The run has no such variable.", key=f"vars.{old}", can_be_mapped=True)
        for old in move.renamed.values()
        if old not in has
    ]
    misfits += [
        Misfit("The version knows no such variable.", key=f"vars.{new}", can_be_mapped=True)
        for new in (*move.renamed, *move.vars)
        if not program.knows(new)
    ]
    strange = [name for name in has if not program.knows(name) and name not in move.renamed.values()]
    first = program.variables()
    missing = [name for name in first if name not in has and name not in given and name not in move.renamed]
    if missing and strange:
        named = ", ".join(f"`{name}`" for name in sorted(strange))
        why = f"The run does not have it, and has {named}, which the version does not know: is one the other?"
        misfits += [Misfit(why, key=f"vars.{name}", can_be_mapped=True) for name in missing]
    return dict(sorted(({name: first[name] for name in missing} | given).items())), misfits
