"""A loaded workflow to a state machine program, or every problem of its machine and its expressions at once.

The structure is judged by `agentflow.workflow.validate`, the expressions here: each is checked against what
is known at its place, which is mostly a question of which states can come before.
"""

from collections.abc import Mapping

import msgspec

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.errors import Problem
from agentflow.ids import AgentName
from agentflow.workflow import model
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.model import FsmSpec
from agentflow.workflow.source_map import Path
from agentflow.workflow.validate import machine_problems
from planners.expressions.evaluate import Expression
from planners.expressions.expression import Watch
from planners.expressions.scope import Scope
from planners.expressions.shapes import ANYTHING, Shape, shape_of
from planners.expressions.templates import Template
from planners.fsm.before import Before
from planners.fsm.program import FsmProgram, SagaProgram
from planners.fsm.table import Child, Fan, FsmState, Loop, Machine, Route, Wait, Way, Work
from planners.placed import Placed
from planners.rules import retry_of

_Found = dict[str, Shape]


def compile_fsm(
    loaded: LoadedWorkflow, *, complete: bool = True, watch: Watch | None = None
) -> tuple[FsmProgram | None, list[Problem]]:
    """The program, or None and all problems. `complete=False`: the definition lost parts on the way here. `watch` is
    told of every evaluation."""
    if too_many := _too_many_expressions(loaded):
        return None, [*machine_problems(loaded, complete=complete), too_many]
    spec = loaded.workflow.spec
    assert isinstance(spec, FsmSpec)
    placed = Placed(loaded.document)
    compiler = _Compiler(spec, placed, complete=complete, watch=watch)
    machine = compiler.machine(spec.fsm, ("spec", "fsm"), {}, {}, first=None)
    problems = machine_problems(loaded, complete=complete) + placed.problems
    if problems or not complete:
        return None, problems
    return (SagaProgram if compiler.compensates else FsmProgram)(machine, spec.vars, spec.fsm), []


class _Compiler:
    def __init__(self, spec: FsmSpec, placed: Placed, *, complete: bool, watch: Watch | None) -> None:
        self._watch = watch
        self.compensates = False
        self._placed = placed
        self._complete = complete
        self._input = shape_of(spec.input)
        self._vars = _vars_of(spec)

    def machine(
        self,
        fsm: model.Fsm | model.Body,
        path: Path,
        around: Mapping[str, Shape],
        known: Mapping[str, Shape],
        *,
        first: Shape | None,
    ) -> Machine:
        """`around`: outputs outside of it; `known`: locals; `first`: what the first state sees as `output`."""
        states = fsm.states or {}
        before = Before(fsm.initial_state or "", states, first, complete=self._complete)
        steps = {**around, **{name: before.output_of(state) for name, state in states.items() if state.kind}}
        compiled = {}
        for name, state in states.items():
            if self._placed.full:
                break  # nobody reads on, and a hostile definition should not cost more
            at = (*path, "states", name)
            entry = self._scope(steps, known, before.output_at(name), error=before.has_error(name))
            compiled[name] = self._state(state, at, name, entry, final=name in fsm.final_states)
        return Machine(fsm.initial_state or "", compiled)

    def _scope(
        self, steps: Mapping[str, Shape], known: Mapping[str, Shape], output: Shape | None, *, error: bool
    ) -> Scope:
        return Scope(
            self._input, output, steps, has_error=error, vars=self._vars, locals=known, watch=self._watch
        )  # fmt: skip

    def _state(self, state: model.State, at: Path, name: str, entry: Scope, *, final: bool) -> FsmState:
        placed = self._placed
        raw = Before.raw_output_of(state) if state.kind != "choice" else entry.output
        ended = self._scope(entry.steps, entry.locals, raw, error=state.kind == "choice" and entry.has_error)
        left = ended
        if "result" in state.model_fields_set:
            left = self._scope(entry.steps, entry.locals, ANYTHING, error=False)
        ways_at = (*at, "choice" if state.kind == "choice" else "transitions")
        self.compensates = self.compensates or state.compensation is not None
        return FsmState(
            name=name,
            label=name,
            kind=state.kind,
            final=final,
            work=self._work(state, at, entry) if state.kind == "step" else None,
            wait=self._wait(state, at, entry),
            fan=self._fan(state, at, entry),
            loop=self._loop(state, at, entry),
            child=self._child(state, at, entry),
            task=self._task(state, at, entry),
            failure=(
                (state.fail.code, placed.template(state.fail.message, entry, (*at, "fail", "message")))
                if state.fail is not None
                else None
            ),
            output=placed.template(state.succeed, entry, (*at, "succeed")) if state.kind == "succeed" else None,
            result=(
                placed.template(state.result, ended, (*at, "result")) if "result" in state.model_fields_set else None
            ),
            vars=tuple((var, placed.template(value, left, (*at, "vars", var))) for var, value in state.vars.items()),
            ways=self._ways(state, ways_at, left),
            routes=tuple(_route(route) for route in state.error_routes),
            timeout_ms=None if state.kind == "step" else state.timeout,
            compensation=(
                self._work(state.compensation, (*at, "compensation"), left) if state.compensation is not None else None
            ),
            max_visits=state.max_visits,
        )

    def _work(self, step: model.Step, at: Path, scope: Scope) -> Work:
        return Work(
            agent=TOOLS_AGENT if step.agent is None else AgentName(step.agent),
            tool=step.tool,
            input=self._placed.template(step.input, scope, (*at, "input")),
            timeout_ms=limits.STEP_TIMEOUT_MS_DEFAULT if step.timeout is None else step.timeout,
            retry=retry_of(step.retry),
        )

    def _ways(self, state: model.State, at: Path, scope: Scope) -> tuple[Way, ...]:
        ways = [
            (
                -way.priority,
                number,
                Way(way.to, self._condition(way.condition, scope, (*at, number, "condition"))),
            )
            for number, way in enumerate(state.ways)
        ]
        return tuple(way for _, _, way in sorted(ways, key=lambda one: one[:2]))

    def _condition(self, text: str | None, scope: Scope, at: Path) -> Expression | None:
        return None if text is None else self._placed.condition(text, scope, at)

    def _wait(self, state: model.State, at: Path, scope: Scope) -> Wait | None:
        if state.wait is None:
            return None
        until = state.wait.until
        template = None if until is None else self._placed.template(until, scope, (*at, "wait", "until"))
        return Wait(state.wait.duration, template, state.wait.signal)

    def _child(self, state: model.State, at: Path, scope: Scope) -> Child | None:
        if state.subworkflow is None:
            return None
        given = self._placed.template(state.input, scope, (*at, "input"))
        return Child(state.subworkflow.name, state.subworkflow.version, given)

    def _task(self, state: model.State, at: Path, scope: Scope) -> Template | None:
        if state.human is None:
            return None
        written = state.human.model_dump(mode="json", exclude={"form"})
        form = {} if state.human.form is None else {"form": state.human.form}
        given = {"input": state.input} if "input" in state.model_fields_set else {}
        return self._placed.task(written, form, given, scope, at)

    def _fan(self, state: model.State, at: Path, entry: Scope) -> Fan | None:
        if state.parallel is not None:
            parallel = state.parallel
            bodies = {
                name: self._body(body, (*at, *below), name, f"{at[-1]}.{name}", entry, {}, first=None)
                for below, name, body in state.bodies()
            }
            needed = {"all": len(bodies), "any": 1}.get(str(parallel.join), parallel.join)
            return Fan(bodies, needed=int(needed))
        if state.map is None:
            return None
        known = {state.map.as_: ANYTHING, "index": Shape("int")}
        body = self._body(state.map.do, (*at, "map", "do"), "do", f"{at[-1]}.do", entry, known, first=None)
        return Fan(
            {"do": body},
            over=self._placed.template(state.map.over, entry, (*at, "map", "over")),
            item=state.map.as_,
            concurrency=state.map.concurrency,
            tolerated=None if isinstance(state.map.tolerate, str) else state.map.tolerate,
        )

    def _loop(self, state: model.State, at: Path, entry: Scope) -> Loop | None:
        loop = state.loop
        if loop is None:
            return None
        index = {"index": Shape("int")}
        known = index if loop.for_ is None else {**index, loop.as_: ANYTHING}
        inside = self._scope(entry.steps, {**entry.locals, **index}, ANYTHING, error=False)
        after = self._scope(entry.steps, {**entry.locals, **known}, Before.raw_output_of(state), error=False)
        return Loop(
            body=self._body(loop.do, (*at, "loop", "do"), "do", f"{at[-1]}.do", entry, known, first=ANYTHING),
            bound=loop.max,
            while_=self._condition(loop.while_, inside, (*at, "loop", "while")),
            for_=(None if loop.for_ is None else self._placed.template(loop.for_, entry, (*at, "loop", "for"))),
            item=loop.as_,
            break_=self._condition(loop.break_, after, (*at, "loop", "break")),
        )

    def _body(
        self,
        body: model.Body,
        at: Path,
        name: str,
        label: str,
        entry: Scope,
        known: Mapping[str, Shape],
        *,
        first: Shape | None,
    ) -> Machine:
        local = {**entry.locals, **known}
        if body.states is not None:
            return self.machine(body, at, entry.steps, local, first=first)
        scope = self._scope(entry.steps, local, first, error=False)
        return Machine("", {"": FsmState("", label, kind="step", final=True, work=self._work(body, at, scope))})


def _vars_of(spec: FsmSpec) -> Shape:
    """Every variable that is declared or set anywhere; others do not exist."""
    names = dict.fromkeys(spec.vars)
    rest = list(spec.fsm.states.values())
    while rest:
        state = rest.pop()
        names |= dict.fromkeys(state.vars)
        for _, _, body in state.bodies():
            rest += (body.states or {}).values()
    return Shape("map<string, dyn>", dict.fromkeys(sorted(names), ANYTHING), closed=True)


def _route(route: model.ErrorRoute) -> Route:
    exact = frozenset(code for code in route.codes if not code.endswith("*"))
    return Route(route.to, exact, tuple(code[:-1] for code in route.codes if code.endswith("*")))


def _too_many_expressions(loaded: LoadedWorkflow) -> Problem | None:
    written = msgspec.json.encode(loaded.document.data["spec"]["fsm"])
    count = written.count(b"${") + written.count(b'"condition":"')
    if count <= limits.EXPRESSIONS_PER_WORKFLOW_MAX:
        return None
    message = f"There are {count} expressions; {limits.EXPRESSIONS_PER_WORKFLOW_MAX} are allowed."
    place = loaded.document.key_position(("spec", "fsm", "states"))
    return Problem(message, "Split the workflow.", *place, "spec.fsm.states")
