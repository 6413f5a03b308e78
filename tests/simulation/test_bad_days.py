"""Seeded bad days over the real rules: messages come twice, late, out of order or never, and the owner forgets.

The same seed is the same day; the seed is in the test's name, so a failure can be lived through again.
"""

import random
from collections import Counter

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.decide import decide
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
    Retry,
    StepFailed,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
    decode,
    encode,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import Stamp, Start, StepReported, TimeReached
from agentflow.execution.program import Fail, Finish, RunStep
from agentflow.execution.state import ExecutionState, Status, next_wakeup, pending_commands
from agentflow.ids import AgentName, ExecutionId, TenantId, TraceId, WorkerId, WorkflowId

DAYS = range(300)
SEEDS_PER_DAY = 10


class RandomMachine:
    """A machine whose edges come from its seed: pure, because the answer depends on name and outcome only."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self._size = chance.randint(1, 6)
        self._retry = Retry(chance.randint(1, 3), 50, 2.0, 500, jitter=chance.random() < 0.5)
        self._next = {i: chance.choice([i + 1, i + 1, i + 2, self._size]) for i in range(self._size)}
        self._rescue = {i: chance.choice([None, i + 1]) for i in range(self._size)}

    def begin(self, run):
        return (self._enter(0),)

    def advance(self, run, outcome):
        here = int(outcome.name[1:])
        if outcome.fault is None:
            return (self._enter(self._next[here]),)
        rescue = self._rescue[here]
        return (Fail(outcome.fault),) if rescue is None else (self._enter(rescue),)

    def _enter(self, state):
        if state >= self._size:
            return Finish(f"ended at {state}")
        return RunStep(
            f"s{state}", f"s{state}", AgentName("agent"), None, {"from": state}, timeout_ms=1_000, retry=self._retry
        )


class World:
    """At-least-once delivery, loss included, around one execution whose owner may restart at any moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.program = RandomMachine(seed)
        self.now_ms = 1_000
        self.log: list[bytes] = []
        self.state = ExecutionState()
        self.inbox: list[object] = []
        self.ran: Counter[tuple[str, int]] = Counter()

    def live(self) -> None:
        workflow = WorkflowRef(WorkflowId("wf"), "random", "1.0.0", "d")
        timeout_ms = self.chance.choice([None, 500, 3_000])
        start = Start(self.stamp(), ExecutionId("exec"), TenantId("t"), workflow, {}, TraceId("x"), timeout_ms)
        self.deliver(start)
        self.inbox.append(start)
        for _ in range(2_000):
            if self.state.ended and not self.inbox:
                self.now_ms += 10_000
                self.deliver(TimeReached(self.stamp()))  # a timer that nobody took down
                return
            self.step()
        raise AssertionError(f"did not end: {self.state}")

    def step(self) -> None:
        self.now_ms += self.chance.randint(0, 200)
        if self.chance.random() < 0.05:
            self.crash()
        wakeup = next_wakeup(self.state)
        if not self.inbox and wakeup is not None:
            self.now_ms = max(self.now_ms, wakeup)
        if (wakeup is not None and self.now_ms >= wakeup) or self.chance.random() < 0.05:
            self.deliver(TimeReached(self.stamp()))
        if self.inbox:
            message = self.inbox.pop(self.chance.randrange(len(self.inbox)))
            if self.chance.random() < 0.2:
                self.inbox.append(message)
            self.deliver(message)

    def deliver(self, message) -> None:
        decision = decide(self.state, message, self.program)
        before = self.state
        for event in decision.events:
            self.log.append(encode(event))
            self.state = evolve(self.state, event)
        assert self.state == decision.state
        assert decision.events or self.state == before
        for command in decision.commands:
            self.send(command)

    def send(self, command) -> None:
        if self.chance.random() < 0.1:
            return  # lost: only the sweeper or a time-out brings it back
        for _ in range(self.chance.choice([1, 1, 1, 2])):
            self.ran[command.path, command.attempt] += 1
            about = f"attempt {command.attempt}"
            fault = self.chance.choice([None, None, None, StepFault("f", about, True), StepFault("g", about, False)])
            output = None if fault else about
            worker = WorkerId("wrk")
            self.inbox.append(
                StepReported(self.stamp(), command.path, command.attempt, worker, 0, 0, output, fault)
            )  # fmt: skip

    def crash(self) -> None:
        """Memory is gone; the log is all that is left, and everything it implies is sent again."""
        self.state = ExecutionState()
        for raw in self.log:
            self.state = evolve(self.state, decode(raw))
        for command in pending_commands(self.state):
            self.send(command)

    def stamp(self) -> Stamp:
        return Stamp(self.now_ms, self.chance.random())


def event_is_a_timeout(event: Event) -> bool:
    return isinstance(event, StepFailed) and event.fault.code == "timeout"


def check(events: list[Event]) -> None:
    assert isinstance(events[0], ExecutionStarted)
    assert isinstance(events[-1], ExecutionCompleted | ExecutionFailed)
    assert sum(isinstance(event, ExecutionStarted | ExecutionCompleted | ExecutionFailed) for event in events) == 2
    scheduled, outcomes, final = Counter(), Counter(), Counter()
    for event in events:
        match event:
            case StepScheduled():
                scheduled[event.path, event.attempt] += 1
                assert final[event.path] == 0, "scheduled after its outcome"
            case StepSucceeded() | StepFailed():
                outcomes[event.path, event.attempt] += 1
                assert scheduled[event.path, event.attempt] == 1, "an outcome of something never scheduled"
                said = event.output if isinstance(event, StepSucceeded) else event.fault.message
                assert event_is_a_timeout(event) or said == f"attempt {event.attempt}", "another attempt's outcome"
                final[event.path] += isinstance(event, StepSucceeded) or event.retry_at_ms is None
    assert all(count == 1 for count in scheduled.values()), "scheduled twice"
    assert all(count == 1 for count in outcomes.values()), "an attempt has two outcomes"
    assert all(count <= 1 for count in final.values()), "a step has two final outcomes"


@pytest.mark.parametrize("day", DAYS)
def test_every_execution_ends_and_each_attempt_has_one_outcome(day):
    for seed in range(day * SEEDS_PER_DAY, (day + 1) * SEEDS_PER_DAY):
        world = World(seed)
        world.live()

        try:
            check([decode(raw) for raw in world.log])
            assert world.state.status in (Status.COMPLETED, Status.FAILED)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_same_seed_is_the_same_day():
    def lived(seed):
        world = World(seed)
        world.live()
        return world.log

    assert all(lived(seed) == lived(seed) for seed in range(20))
