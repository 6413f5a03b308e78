"""The compiled state machine: where to go after a step, and what to ask for there.

Answers `agentflow.execution.decide` through the `Program` protocol. Every wrong turn (a failed step, a
condition without an answer, an input that cannot be made) is a fault of a state, and its `on_error` decides.
"""

from collections.abc import Mapping

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry
from agentflow.execution.program import Fail, Finish, Intents, Outcome, RunStep, RunView, StepOutcome
from agentflow.ids import AgentName
from planners.expressions.evaluate import Expression
from planners.expressions.scope import Facts
from planners.expressions.templates import Template


class Way(msgspec.Struct, frozen=True):
    """One way on: taken when its condition holds, or when it has none."""

    to: str
    condition: Expression | None = None


class Work(msgspec.Struct, frozen=True):
    """The step of a state."""

    agent: AgentName
    tool: str | None
    input: Template
    timeout_ms: int
    retry: Retry


class FsmState(msgspec.Struct, frozen=True):
    name: str
    final: bool
    work: Work | None  # only a final state may have none
    ways: tuple[Way, ...]
    on_error: str | None


class FsmProgram:
    def __init__(self, initial: str, states: Mapping[str, FsmState]) -> None:
        self._initial = initial
        self._states = dict(states)
        # A state whose input cannot be made hands over to its on_error at once, so without a bound two of
        # them could pass a fault back and forth for ever.
        self._hops_max = len(self._states) + 1

    def begin(self, run: RunView) -> Intents:
        return self._enter(self._initial, Facts(run.input, None, run.outputs, run.workflow))

    def advance(self, run: RunView, outcome: Outcome) -> Intents:
        if not isinstance(outcome, StepOutcome):
            return ()
        state = self._states.get(outcome.name)
        if state is None:
            return (Fail(StepFault("unknown_state", f"The workflow has no state `{outcome.name}`.")),)
        facts = Facts(run.input, outcome.output, run.outputs, run.workflow)
        if outcome.fault is not None:
            return self._recover(state, outcome.fault, facts)
        if state.final:
            return (Finish(outcome.output),)
        target = _next(state, facts)
        if isinstance(target, StepFault):
            return self._recover(state, target, facts)
        return self._enter(target, facts)

    def _recover(self, state: FsmState, fault: StepFault, facts: Facts) -> Intents:
        if state.on_error is None:
            return (_failed(state, fault),)
        return self._enter(state.on_error, _with_error(facts, fault))

    def _enter(self, target: str, facts: Facts) -> Intents:
        for _ in range(self._hops_max):
            state = self._states[target]
            work = state.work
            if work is None:
                return (Finish(facts.output),)
            step_input = work.input.render(facts)
            if not isinstance(step_input, StepFault):
                return (RunStep(target, target, work.agent, work.tool, step_input, work.timeout_ms, work.retry),)
            if state.on_error is None:
                return (_failed(state, step_input),)
            target, facts = state.on_error, _with_error(facts, step_input)
        message = f"State `{target}` was reached again and again by on_error without a step that could begin."
        return (Fail(StepFault("no_progress", message)),)


def _next(state: FsmState, facts: Facts) -> str | StepFault:
    for way in state.ways:
        if way.condition is None:
            return way.to
        holds = way.condition.holds(facts)
        if holds is True:
            return way.to
        if holds is not False:
            return holds
    return StepFault("no_transition", "No condition of its transitions holds.")


def _with_error(facts: Facts, fault: StepFault) -> Facts:
    return Facts(facts.input, facts.output, facts.outputs, facts.workflow, fault)


def _failed(state: FsmState, fault: StepFault) -> Fail:
    return Fail(StepFault(fault.code, f"State `{state.name}` failed: {fault.message}"))
