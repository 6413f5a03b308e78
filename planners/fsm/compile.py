"""A loaded workflow to a state machine program, or every problem of its machine and its expressions at once.

The structure is judged by `agentflow.workflow.validate`, the expressions here: each is checked against what
is known at its place, which is mostly a question of which states can come before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.errors import Problem
from agentflow.execution.events import Retry
from agentflow.ids import AgentName
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.model import Fsm, RetryRule, State, Transition
from agentflow.workflow.source_map import Path, path_text
from agentflow.workflow.validate import machine_problems
from planners.expressions.conditions import compile_condition
from planners.expressions.evaluate import Expression
from planners.expressions.lexer import line_and_column
from planners.expressions.scope import Scope
from planners.expressions.shapes import ANYTHING, Shape, shape_of
from planners.expressions.templates import PlacedFault, compile_template
from planners.fsm.program import FsmProgram, FsmState, Way, Work

_RETRY_DEFAULT = Retry()


def compile_fsm(loaded: LoadedWorkflow, *, complete: bool = True) -> tuple[FsmProgram | None, list[Problem]]:
    """The program, or None and all problems. `complete=False`: the definition lost parts on the way here."""
    if too_many := _too_many_expressions(loaded):
        return None, [*machine_problems(loaded, complete=complete), too_many]
    compiler = _Compiler(loaded, complete=complete)
    states = compiler.states()
    problems = machine_problems(loaded, complete=complete) + compiler.problems
    if problems or not complete:
        return None, problems
    return FsmProgram(loaded.workflow.machine.initial_state, states), []


class _Compiler:
    def __init__(self, loaded: LoadedWorkflow, *, complete: bool) -> None:
        self.problems: list[Problem] = []
        self._document = loaded.document
        self._fsm = loaded.workflow.machine
        self._input = shape_of(loaded.workflow.spec.input)
        self._outputs = {name: shape_of(state.output) for name, state in self._fsm.states.items() if state.has_step}
        self._before = _Before(self._fsm)
        # Where a way by error was lost or misspelt, any state may be meant: `error` is then no second problem.
        self._error_anywhere = not complete or not self._before.by_error <= self._fsm.states.keys()

    def states(self) -> dict[str, FsmState]:
        states = {}
        for name, state in self._fsm.states.items():
            if len(self.problems) >= limits.PROBLEMS_SHOWN_MAX:
                break  # nobody reads on, and a hostile definition should not cost more
            states[name] = FsmState(
                name=name,
                final=name in self._fsm.final_states,
                work=self._work(name, state) if state.has_step else None,
                ways=self._ways(name, state),
                on_error=state.on_error,
            )
        return states

    def _work(self, name: str, state: State) -> Work:
        path: Path = ("spec", "fsm", "states", name, "input")
        template, faults = compile_template(state.input, self._scope_of_input(name), path)
        self._report(faults)
        return Work(
            agent=TOOLS_AGENT if state.agent is None else AgentName(state.agent),
            tool=state.tool,
            input=template,
            timeout_ms=limits.STEP_TIMEOUT_MS_DEFAULT if state.timeout is None else state.timeout,
            retry=retry_of(state.retry),
        )

    def _ways(self, name: str, state: State) -> tuple[Way, ...]:
        if state.on_success is not None:
            return (Way(state.on_success),)
        path: Path = ("spec", "fsm", "states", name, "transitions")
        scope = Scope(self._input, self._outputs.get(name, ANYTHING), self._outputs)
        return tuple(
            Way(transition.to, self._condition(transition, scope, (*path, at, "condition")))
            for at, transition in enumerate(state.transitions)
        )

    def _condition(self, transition: Transition, scope: Scope, path: Path) -> Expression | None:
        text = transition.condition
        if text is None or len(self.problems) >= limits.PROBLEMS_SHOWN_MAX:
            return None
        expression, faults = compile_condition(text, scope)
        self._report(PlacedFault(path, text, fault) for fault in faults)
        return expression

    def _scope_of_input(self, name: str) -> Scope:
        """What the input of a state may use: it is made when the step before has ended, well or badly."""
        before = self._before.by_success[name]
        after_error = name in self._before.by_error
        return Scope(
            input=self._input,
            output=self._output_before(name, before, after_error=after_error),
            steps=self._outputs,
            has_error=after_error or self._error_anywhere,
        )

    def _output_before(self, name: str, before: list[str], *, after_error: bool) -> Shape | None:
        """What is known of the output of the step before; None where no step comes before."""
        is_first = name == self._fsm.initial_state
        if is_first and not before and not after_error:
            return None
        schemas = [self._fsm.states[other].output for other in before]
        if is_first or after_error or not schemas or any(schema != schemas[0] for schema in schemas):
            return ANYTHING
        return shape_of(schemas[0])

    def _report(self, faults: Iterable[PlacedFault]) -> None:
        for placed in faults:
            line, column = line_and_column(placed.text, placed.fault.offset)
            place = self._document.within(placed.path, line, column)
            self.problems.append(Problem(placed.fault.message, placed.fault.hint, *place, path_text(placed.path)))


def _too_many_expressions(loaded: LoadedWorkflow) -> Problem | None:
    states = loaded.workflow.machine.states.values()
    count = sum(msgspec.json.encode(state.input).count(b"${") + len(state.transitions) for state in states)
    if count <= limits.EXPRESSIONS_PER_WORKFLOW_MAX:
        return None
    message = f"There are {count} expressions; {limits.EXPRESSIONS_PER_WORKFLOW_MAX} are allowed."
    place = loaded.document.key_position(("spec", "fsm", "states"))
    return Problem(message, "Split the workflow.", *place, "spec.fsm.states")


class _Before:
    """Which states lead to each state, by success and by error."""

    def __init__(self, fsm: Fsm) -> None:
        self.by_success: Mapping[str, list[str]] = defaultdict(list)
        self.by_error: set[str] = set()
        for name, state in fsm.states.items():
            for target in (state.on_success, *(transition.to for transition in state.transitions)):
                if target is not None:
                    self.by_success[target].append(name)
            if state.on_error is not None:
                self.by_error.add(state.on_error)


def retry_of(rule: RetryRule | None) -> Retry:
    if rule is None:
        return _RETRY_DEFAULT
    return Retry(
        max_attempts=rule.max_attempts,
        initial_ms=rule.initial,
        multiplier=rule.multiplier,
        max_ms=max(_RETRY_DEFAULT.max_ms, rule.initial) if rule.max is None else rule.max,
        jitter=rule.jitter == "full",
    )
