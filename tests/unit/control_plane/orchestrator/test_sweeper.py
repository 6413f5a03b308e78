"""What is sent again: what nobody has, and not what a living worker says that it is working on."""

import pytest

from agentflow import limits
from agentflow.clock import ControlledClock
from agentflow.contracts.pools import NOTHING_SHARED
from agentflow.contracts.step import HeldStep
from agentflow.execution.events import StepScheduled
from agentflow.execution.frozen_map import FrozenMap
from agentflow.execution.state import ExecutionState, Status, dispatch
from control_plane.orchestrator.sweeper import Sweeper
from control_plane.orchestrator.windows import Windows

RESEND_AFTER_S = 10.0


class Outbound:
    def __init__(self) -> None:
        self.sent = []

    async def send_again(self, state, command):
        self.sent.append((state.execution, command.path))
        return True


class World:
    def __init__(self, *, straight: bool = True) -> None:
        self.clock = ControlledClock()
        self.outbound = Outbound()
        self.held: dict[str, frozenset[HeldStep]] = {}
        step = StepScheduled(self.clock.now_ms(), "work", "work", 1, "worker", {}, 60_000, straight=straight)
        self.command = dispatch(step)
        waiting = ExecutionState(
            version=2, status=Status.RUNNING, execution="exec_1", tenant="acme", in_flight=FrozenMap().put("work", step)
        )
        self.sweeper = Sweeper(
            bus=None,
            outbound=self.outbound,
            clock=self.clock,
            open_executions={"exec_1": waiting},
            resend_after_s=RESEND_AFTER_S,
            windows=Windows(8),
            withholds=lambda state, agent: False,
            pools=NOTHING_SHARED,
            holding=lambda pool: self.held.get(pool, frozenset()),
        )

    async def sent_after(self, seconds: float) -> list[tuple[str, str]]:
        await self.clock.advance(seconds)
        await self.sweeper.sweep()
        return self.outbound.sent


@pytest.fixture
def world():
    return World()


async def test_a_step_that_nobody_has_is_sent_again(world):
    world.sweeper.sent("exec_1", world.command)

    assert await world.sent_after(RESEND_AFTER_S - 1) == []
    assert await world.sent_after(1) == [("exec_1", "work")]


async def test_a_step_that_a_living_worker_has_is_sent_again_only_once_it_has_it_no_more(world):
    world.sweeper.sent("exec_1", world.command)
    world.held["acme"] = frozenset({HeldStep("exec_1", "work", 1)})

    assert await world.sent_after(RESEND_AFTER_S) == []
    world.held.clear()
    assert await world.sent_after(RESEND_AFTER_S) == [("exec_1", "work")]


async def test_another_tenants_worker_cannot_keep_a_step_from_being_sent_again(world):
    world.sweeper.sent("exec_1", world.command)
    world.held["globex"] = frozenset({HeldStep("exec_1", "work", 1)})

    assert await world.sent_after(RESEND_AFTER_S) == [("exec_1", "work")]


async def test_what_may_be_in_the_stream_or_nowhere_is_sent_again_at_once():
    world = World(straight=False)
    world.sweeper.suspect("exec_1", world.command)

    assert await world.sent_after(0) == [("exec_1", "work")]


async def test_what_may_be_with_a_worker_waits_until_every_worker_has_said_what_it_holds(world):
    world.sweeper.suspect("exec_1", world.command)

    assert await world.sent_after(limits.HEARD_S - 0.1) == []
    assert await world.sent_after(0.1) == [("exec_1", "work")]
