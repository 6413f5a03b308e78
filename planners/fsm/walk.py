"""How a machine goes on: entering, leaving and failing states, until everything left is waiting for something.

One `Walk` makes one answer. It works off a list instead of calling itself, so that a thousand pure states in a row
cost no depth. Whatever goes wrong in a state is a fault of that state, and its `on_error` decides.
"""

from collections.abc import Callable
from typing import Any

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.program import (
    AskHuman,
    AwaitSignal,
    Fail,
    Finish,
    Halt,
    Intents,
    RunStep,
    RunView,
    StartChild,
    StartTimer,
)
from planners.expressions.scope import Facts
from planners.fsm.fans import Fans
from planners.fsm.table import Frame, FsmState, Work
from planners.fsm.turn import Outputs, Turn
from planners.fsm.undo import Undo
from planners.rules import moment_of


class Walk:
    def __init__(self, top: Frame, run: RunView) -> None:
        self.top = top
        self.turn = Turn(run)
        self.fans = Fans(self)
        self.undo = Undo(self)
        self._todo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def push(self, act: Callable[..., None], *args: Any) -> None:
        """To be done next, before what was pushed earlier."""
        self._todo.append((act, args))

    def answer(self) -> Intents:
        turn = self.turn
        while self._todo and not turn.over:
            act, args = self._todo.pop()
            act(*args)
            if turn.hops > limits.HOPS_PER_ANSWER_MAX:
                passed = f"{limits.HOPS_PER_ANSWER_MAX} states were passed without waiting for anything."
                self.fail(StepFault("no_progress", passed))
        return turn.answer()

    def facts(self, frame: Frame, output: Any, error: StepFault | None = None) -> Facts:
        run = self.turn.run
        outputs = run.outputs if frame.machine.plain and not frame.path else Outputs(self.turn, frame)
        known = self.turn.all_vars()
        return Facts(run.input, output, outputs, run.workflow, error, known, run.env, frame.locals)

    def find(self, place: str) -> tuple[Frame, FsmState] | None:
        """The state at a place, in the frame that it is at work in; None where the machine has no such place."""
        frame = self.top
        if place in frame.machine.states:
            return frame, frame.machine.states[place]
        parts = place.split("/")
        for at in range(0, len(parts), 2):
            state = frame.machine.states.get(parts[at])
            if state is None or at + 1 == len(parts):
                return None if state is None else (frame, state)
            if state.body(parts[at + 1]) is None:
                return None
            frame = self.fans.frame(frame, state, parts[at + 1])
        within = frame.machine.states.get("")
        return None if within is None else (frame, within)

    # Into a state.

    def enter(self, frame: Frame, name: str, output: Any, error: StepFault | None = None) -> None:
        state = frame.machine.states[name]
        if state.max_visits is not None and not self._visit(frame, state, state.max_visits):
            return
        if frame.path and not frame.machine.direct:
            self.turn.remember(f"@{frame.path}", name)
        facts = self.facts(frame, output, error)
        match state.kind:
            case "step" if state.work is not None:
                self._begin_step(frame, state, state.work, facts)
            case None:
                self.end_frame(frame, output)
            case "choice":
                self._set_vars_and_go(frame, state, facts)
            case "parallel" | "map":
                self._begin_timeout(frame, state)
                self.fans.begin(frame, state, facts)
            case "loop":
                self._begin_timeout(frame, state)
                self.fans.begin_loop(frame, state, facts)
            case "succeed" if state.output is not None:
                self._or_failed(frame, state, state.output.render(facts), self._succeed)
            case "fail" if state.failure is not None:
                self._or_failed(frame, state, state.failure[1].render(facts), self._fail_on_purpose)
            case "compensate":
                self.undo.begin({"then": "go", "of": frame.place(state)})
            case _:
                self._begin_waiting(frame, state, facts)

    def _visit(self, frame: Frame, state: FsmState, most: int) -> bool:
        key = f"#{frame.place(state)}"
        visits = (self.turn.recall(key) or 0) + 1
        if visits > most:
            # Not for `on_error`: what it leads to could come back here for ever.
            message = f"State `{state.name}` was entered more than {most} times."
            self.fail_frame(frame, StepFault("max_visits", message))
            return False
        self.turn.remember(key, visits)
        return True

    def _begin_step(self, frame: Frame, state: FsmState, work: Work, facts: Facts) -> None:
        rendered = work.input.render(facts)
        if isinstance(rendered, StepFault):
            self.push(self.failed, frame, state, rendered)
            return
        key = frame.place(state)
        self.turn.intents.append(
            RunStep(key, state.label, work.agent, work.tool, rendered, work.timeout_ms, work.retry)
        )  # fmt: skip

    def _begin_waiting(self, frame: Frame, state: FsmState, facts: Facts) -> None:
        key, intents = frame.place(state), self.turn.intents
        if state.wait is not None:
            wait = state.wait
            if wait.signal is not None:
                intents.append(AwaitSignal(key, wait.signal))
                self._begin_timeout(frame, state)
                return
            at_ms = moment_of(wait.until.render(facts)) if wait.until is not None else None
            if isinstance(at_ms, StepFault):
                self.push(self.failed, frame, state, at_ms)
                return
            intents.append(StartTimer(key, self.turn.run.at_ms + (wait.duration_ms or 0) if at_ms is None else at_ms))
        elif state.child is not None:
            self._or_failed(frame, state, state.child.input.render(facts), self._start_child)
        elif state.task is not None:
            self._or_failed(frame, state, state.task.render(facts), self._ask)

    def _start_child(self, frame: Frame, state: FsmState, rendered: Any) -> None:
        if state.child is not None:
            child = state.child
            self.turn.intents.append(StartChild(frame.place(state), child.workflow, child.version, rendered))
            self._begin_timeout(frame, state)

    def _ask(self, frame: Frame, state: FsmState, rendered: Any) -> None:
        self.turn.intents.append(AskHuman(frame.place(state), rendered))
        self._begin_timeout(frame, state)

    def _succeed(self, frame: Frame, state: FsmState, rendered: Any) -> None:
        self.end_frame(frame, rendered)

    def _fail_on_purpose(self, frame: Frame, state: FsmState, rendered: Any) -> None:
        code = state.failure[0] if state.failure is not None else ""
        self.fail_frame(frame, StepFault(code, str(rendered)))

    def _or_failed(
        self, frame: Frame, state: FsmState, rendered: Any, then: Callable[[Frame, FsmState, Any], None]
    ) -> None:
        if isinstance(rendered, StepFault):
            self.push(self.failed, frame, state, rendered)
        else:
            then(frame, state, rendered)

    def _begin_timeout(self, frame: Frame, state: FsmState) -> None:
        if state.timeout_ms is not None:
            self.turn.intents.append(StartTimer(f"{frame.place(state)}!", self.turn.run.at_ms + state.timeout_ms))

    def end_timeout(self, frame: Frame, state: FsmState) -> None:
        if state.timeout_ms is not None and state.kind != "step":
            self.turn.intents.append(Halt(f"{frame.place(state)}!"))

    # Out of a state.

    def done(self, frame: Frame, state: FsmState, output: Any) -> None:
        """Its work is done: keep what is to be kept, then find the way on."""
        self.end_timeout(frame, state)
        facts = self.facts(frame, output)
        if state.result is not None:
            output = state.result.render(facts)
            if isinstance(output, StepFault):
                self.push(self.failed, frame, state, output, facts.output)
                return
            facts = self.facts(frame, output)
        if state.keeps_output or (frame.path and not frame.machine.direct):
            self.turn.remember(f"={frame.place(state)}", output)
        if state.compensation is not None:
            undoing = state.compensation.input.render(facts)
            if isinstance(undoing, StepFault):
                self.push(self.failed, frame, state, undoing, output)
                return
            self.undo.note(frame.place(state), undoing)
        self._set_vars_and_go(frame, state, facts)

    def _set_vars_and_go(self, frame: Frame, state: FsmState, facts: Facts) -> None:
        if state.vars:
            changed = {}
            for name, template in state.vars:
                changed[name] = template.render(facts)
                if isinstance(changed[name], StepFault):
                    self.push(self.failed, frame, state, changed[name], facts.output)
                    return
            self.turn.vars.update(changed)
            facts = self.facts(frame, facts.output, facts.error)
        if state.final:
            self.end_frame(frame, facts.output)
            return
        target = _next(state, facts)
        if isinstance(target, StepFault):
            self.push(self.failed, frame, state, target, facts.output)
        else:
            self.turn.hops += 1
            self.push(self.enter, frame, target, facts.output, facts.error)

    def failed(self, frame: Frame, state: FsmState, fault: StepFault, output: Any = None) -> None:
        """`output` is there where its work was done, but no way led on from it."""
        self.end_timeout(frame, state)
        for route in state.routes:
            if route.takes(fault):
                self.turn.hops += 1
                self.push(self.enter, frame, route.to, output, fault)
                return
        if state.name:
            fault = StepFault(fault.code, f"State `{state.name}` failed: {fault.message}")
        self.fail_frame(frame, fault)

    def timed_out(self, frame: Frame, state: FsmState) -> None:
        self.fans.halt_state(frame, state)
        self.push(self.failed, frame, state, StepFault("timeout", f"It took longer than {state.timeout_ms} ms."))

    # Out of a machine.

    def end_frame(self, frame: Frame, output: Any) -> None:
        if frame.parent is None or frame.holder is None:
            self.turn.intents.append(Finish(output))
            self.turn.over = True
            return
        self.fans.clear(frame)
        self.push(self.fans.slot_ended, frame.parent, frame.holder, frame.slot, output, None)

    def fail_frame(self, frame: Frame, fault: StepFault) -> None:
        if frame.parent is not None and frame.holder is not None:
            self.fans.clear(frame)
            self.push(self.fans.slot_ended, frame.parent, frame.holder, frame.slot, None, fault)
        elif self.undo.has_work:
            self.undo.begin({"then": "fail", "code": fault.code, "message": fault.message})
        else:
            self.fail(fault)

    def fail(self, fault: StepFault) -> None:
        self.turn.intents.append(Fail(fault))
        self.turn.over = True


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
