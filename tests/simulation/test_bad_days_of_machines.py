"""The same bad days for machines of every kind: commands are lost or done twice, answers come late, owners forget.

The seed is in the test's name, so a failure can be lived through again.
"""

import random
from typing import Any

import pytest

from agentflow.execution import commands as c
from agentflow.execution import events as happened
from agentflow.execution import messages as m
from agentflow.execution.decide import decide
from agentflow.execution.events import WorkflowRef, decode, encode
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState, next_wakeup, pending_commands
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from planners.kinds import compile_workflow
from tests.unit.planners.random_machines import FAULTS, grown

DAYS = range(60)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.program = compile_workflow(grown(seed)).program
        self.now_ms = 1_000
        self.log: list[bytes] = []
        self.state = ExecutionState()
        self.inbox: list[Any] = []

    def live(self) -> None:
        workflow = WorkflowRef(WorkflowId("wf"), "random", "1.0.0", "d")
        timeout_ms = self.chance.choice([None, 8_000])
        start = m.Start(self.stamp(), ExecutionId("exec"), TenantId("t"), workflow, {"n": 4}, TraceId("x"), timeout_ms)
        self.deliver(start)
        for _ in range(6_000):
            if self.state.ended:
                return
            self.step()
        raise AssertionError(f"did not end: {self.state}")

    def step(self) -> None:
        self.now_ms += self.chance.randint(0, 100)
        if self.chance.random() < 0.05:
            self.crash()
        if self.chance.random() < 0.02:
            self.inbox += self._people()
        wakeup = next_wakeup(self.state)
        if not self.inbox and wakeup is not None:
            self.now_ms = max(self.now_ms, wakeup)
        if not self.inbox and wakeup is None:
            self.inbox.append(m.Resume(self.stamp(), f"r{self.now_ms}"))
        if wakeup is not None and self.now_ms >= wakeup:
            self.deliver(m.TimeReached(self.stamp()))
        if self.inbox:
            message = self.inbox.pop(self.chance.randrange(len(self.inbox)))
            if self.chance.random() < 0.2:
                self.inbox.append(message)
            self.deliver(message)

    def _people(self) -> list[Any]:
        at, about = self.stamp(), f"p{self.now_ms}"
        return self.chance.choice(
            [
                [m.Pause(at, about), m.Resume(at, f"{about}+")],
                [m.Signal(at, about, "a", 1)],
                [m.Cancel(at, about)],
                [m.UpdateVars(at, about, {"n": 0})],
            ]
        )

    def deliver(self, message: Any) -> None:
        decision = decide(self.state, message, self.program)
        for event in decision.events:
            self.log.append(encode(event))
            self.state = evolve(self.state, event)
        assert self.state == decision.state
        for command in decision.commands:
            if self.chance.random() > 0.1:  # else lost: only recovery or a time-out brings it back
                for _ in range(self.chance.choice([1, 1, 2])):
                    self.perform(command)

    def perform(self, command: c.Command) -> None:
        fault = self.chance.choice([None, None, None, *FAULTS])
        output = None if fault else {"said": command.path}
        match command:
            case c.DispatchStep():
                worker = WorkerId("w")
                self.inbox.append(
                    m.StepReported(self.stamp(), command.path, command.attempt, worker, 0, 0, output, fault)
                )  # fmt: skip
            case c.StartChild():
                self.inbox.append(m.ChildEnded(self.stamp(), command.path, output, fault))
            case c.OpenTask():
                self.inbox.append(m.TaskAnswered(self.stamp(), command.path, output))

    def crash(self) -> None:
        """Memory is gone; the log is all that is left, and everything it implies is sent again."""
        self.state = ExecutionState()
        for raw in self.log:
            self.state = evolve(self.state, decode(raw))
        for command in pending_commands(self.state):
            self.perform(command)

    def stamp(self) -> Stamp:
        return Stamp(self.now_ms, self.chance.random())


@pytest.mark.parametrize("seed", DAYS)
def test_a_machine_of_any_kind_ends_and_each_outcome_is_recorded_once(seed):
    world = World(seed)
    world.live()

    ended: set[tuple[str, int]] = set()
    for event in map(decode, world.log):
        if isinstance(event, happened.StepSucceeded | happened.StepFailed):
            assert (event.path, event.attempt) not in ended
            ended.add((event.path, event.attempt))
    once = [it.path for it in map(decode, world.log) if isinstance(it, happened.ChildEnded | happened.TaskAnswered)]
    assert len(once) == len(set(once))
