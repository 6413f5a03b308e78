"""A timer that fires for nothing sets the next one, whatever is remembered of its execution."""

from typing import Any

from agentflow.clock import ControlledClock
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, UlidSource
from control_plane.orchestrator.orchestrator import Orchestrator
from control_plane.orchestrator.ownership import Ownership

NOTHING: Any = None


async def test_an_execution_that_was_forgotten_while_its_timer_fired_is_woken_again() -> None:
    clock = ControlledClock()
    ownership = Ownership(leases=NOTHING, bus=NOTHING, clock=clock, replica="srv_1", shards=1, lease_s=10, alone=True)
    ownership.epochs[0] = 1
    owner = Orchestrator(
        store=NOTHING,
        bus=NOTHING,
        program_of=NOTHING,
        resolve=NOTHING,
        clock=clock,
        ids=UlidSource(clock.now_ms),
        chance=lambda: 0.5,
        shards=1,
        ownership=ownership,
        resend_after_s=10,
        environment={},
    )
    later_ms = clock.now_ms() + 60_000
    waiting = ExecutionState(execution=ExecutionId("exec_1"), status=Status.RUNNING, deadline_ms=later_ms)

    owner._wake(waiting.execution)
    (fired,) = owner._inbox.take()
    fired.settled(waiting)  # it only waits, so it has left memory since it was decided

    assert owner._timers._armed == {waiting.execution: later_ms}
