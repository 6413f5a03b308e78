"""A program made of a script, and a run of it: for rules that need exactly this answer to exactly that outcome."""

from collections.abc import Callable
from typing import Any

import msgspec

from agentflow.execution import messages as m
from agentflow.execution.decide import Decision, decide
from agentflow.execution.events import Event, Retry, WorkflowRef, decode, encode, type_of
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import ExecutionMessage, Stamp
from agentflow.execution.program import Finish, Intents, Outcome, RunStep, RunView
from agentflow.execution.state import ExecutionState, decode_state, encode_state
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId

REF = WorkflowRef(WorkflowId("wf_1"), "scripted", "1.0.0", "d" * 64)


def step(key: str, **overrides: Any) -> RunStep:
    given: dict[str, Any] = {"name": key.rpartition("/")[2], "agent": AgentName("worker"), "tool": None, "input": None}
    return RunStep(key=key, **given | {"timeout_ms": 5_000, "retry": Retry()} | overrides)


class Script:
    """Answers by the key of the outcome; a key that is not in the script finishes with the outcome itself."""

    def __init__(self, begin: Intents, **answers: Intents | Callable[[RunView, Outcome], Intents]) -> None:
        self._begin = begin
        self._answers = answers
        self.heard: list[Outcome] = []

    def begin(self, run: RunView) -> Intents:
        return self._begin

    def advance(self, run: RunView, outcome: Outcome) -> Intents:
        self.heard.append(outcome)
        answer = self._answers.get(outcome.key)
        if callable(answer):
            return answer(run, outcome)
        return (Finish(msgspec.to_builtins(outcome)),) if answer is None else answer


class UndoingScript(Script):
    def __init__(self, begin: Intents, unwind: Intents, **answers: Any) -> None:
        super().__init__(begin, **answers)
        self._unwind = unwind

    def unwind(self, run: RunView, why: Any) -> Intents:
        return self._unwind


class Run:
    """One execution. After each message the state is stored, read back and folded anew: all three must agree."""

    def __init__(self, program: Any, *, timeout_ms: int | None = None) -> None:
        self.program = program
        self.state = ExecutionState()
        self.log: list[Event] = []
        self.now = 1_000
        self._requests = 0
        start = m.Start(Stamp(self.now), ExecutionId("exec_1"), TenantId("t"), REF, {}, TraceId("x"), timeout_ms)
        self.last = self.give(start)

    def give(self, message: ExecutionMessage) -> Decision:
        decision = decide(self.state, message, self.program)
        self.log += decision.events
        folded = ExecutionState()
        for event in self.log:
            folded = evolve(folded, decode(encode(event)))
        assert folded == decision.state, "folding the events gives another state than deciding did"
        self.state = decode_state(encode_state(decision.state))
        assert self.state == decision.state, "the state does not come back from JSON as it was"
        self.last = decision
        return decision

    def at(self, now: int) -> "Run":
        self.now = now
        return self

    def report(self, path: str, output: Any = None, fault: Any = None, attempt: int = 1) -> Decision:
        stamp = Stamp(self.now)
        return self.give(m.StepReported(stamp, StepPath(path), attempt, WorkerId("w"), 0, 0, output, fault))

    def time(self, now: int) -> Decision:
        self.now = now
        return self.give(m.TimeReached(Stamp(now)))

    def child(self, path: str, output: Any = None, fault: Any = None) -> Decision:
        return self.give(m.ChildEnded(Stamp(self.now), StepPath(path), output, fault))

    def answer(self, path: str, answer: Any) -> Decision:
        return self.give(m.TaskAnswered(Stamp(self.now), StepPath(path), answer))

    def want(self, kind: Any, *args: Any, id: str | None = None) -> Decision:
        """A request; without an `id`, one that was never made before."""
        self._requests += 1
        return self.give(kind(Stamp(self.now), id or f"request-{self._requests}", *args))


def types(decision: Decision) -> list[str]:
    return [type_of(event).removesuffix(".v1") for event in decision.events]


def sent(decision: Decision) -> list[str]:
    return [f"{type(command).__name__} {command.path}" for command in decision.commands]
