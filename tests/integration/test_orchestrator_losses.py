"""Answers of the database and messages of the bus are lost at the worst moments: nothing is lost or done twice."""

import pytest

from agentflow.errors import Unavailable
from agentflow.execution.events import StepSucceeded
from agentflow.ids import ExecutionId
from agentflow.testing import eventually
from control_plane.orchestrator.orchestrator import ExecutionNotFound
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import MAILBOX, TENANT, LossyBus, completes_with_each_outcome_once

desk = orchestrator_desk.desk


async def test_a_start_whose_commit_got_no_answer_still_runs_to_its_end(desk):
    async with desk() as here:
        seen: list[ExecutionId] = []

        def lose_the_first(batch):
            seen.extend(new.execution for new in batch)
            return "after"

        here.store.lose = lose_the_first
        with pytest.raises(Unavailable):
            await here.start()

        await completes_with_each_outcome_once(here, seen[0])


async def test_a_start_that_was_never_committed_leaves_nothing_behind(desk):
    async with desk() as here:
        seen: list[ExecutionId] = []

        def refuse_the_first(batch):
            seen.extend(new.execution for new in batch)
            return "before"

        here.store.lose = refuse_the_first
        with pytest.raises(Unavailable):
            await here.start()
        after = await here.start()

        await completes_with_each_outcome_once(here, after)
        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.state(TENANT, seen[0])
        assert {request.execution_id for request in here.worker.ran} == {after}


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_result_whose_commit_got_no_answer_is_recorded_once(desk, how):
    async with desk() as here:

        def lose_the_first_result(batch):
            return how if any(isinstance(event, StepSucceeded) for new in batch for event in new.events) else None

        here.store.lose = lose_the_first_result
        execution = await here.start()

        await completes_with_each_outcome_once(here, execution)


async def test_a_step_that_the_bus_lost_is_sent_again(desk):
    async with desk() as here:
        here.bus.losing = 2

        execution = await here.start()

        await completes_with_each_outcome_once(here, execution)


async def test_a_wiped_bus_costs_time_but_no_execution(desk, nats):
    async with desk(working=False) as here:
        execution = await here.start()
        await eventually(lambda: _waiting(here.bus), within_s=5)

        await nats.restart(wipe=True)

        async def subscribed() -> bool:
            try:
                await here.bus.subscribe(MAILBOX, here.worker.receive)
            except Unavailable:
                return False
            return True

        await eventually(subscribed, within_s=10)
        await completes_with_each_outcome_once(here, execution)


async def _waiting(bus: LossyBus) -> bool:
    return (await bus.backlog(MAILBOX)).waiting == 1
