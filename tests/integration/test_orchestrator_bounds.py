"""The orchestrator within its bounds: what it keeps in memory, and what it gives an agent at once."""

from agentflow.execution import messages
from agentflow.execution.events import StepSucceeded
from agentflow.execution.state import Status
from agentflow.ids import TenantId
from agentflow.testing import eventually
from control_plane.orchestrator.bounds import Bounds
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import MAILBOX, PATIENT, WORKFLOW, completes_with_each_outcome_once

desk = orchestrator_desk.desk


async def test_idle_executions_are_forgotten_and_go_on_when_something_happens_to_them(desk):
    async with desk(bounds=Bounds(open_max=3)) as here:
        waiting = [await here.start(workflow=PATIENT) for _ in range(12)]
        remembered = here.orchestrator._open
        await eventually(lambda: len(remembered) == 3, within_s=10)

        for number, execution in enumerate(waiting):
            await here.asked(execution, lambda stamp, n=number: messages.Signal(stamp, "go-1", "go", {"n": n}))

        for number, execution in enumerate(waiting):
            assert (await here.ended(execution)).output == {"n": number}
            assert (await here.story(execution)).count(StepSucceeded) == 1


async def test_a_new_owner_keeps_no_more_in_memory_than_it_may_and_loses_nobody(desk):
    async with desk() as here:
        waiting = [await here.start(workflow=PATIENT) for _ in range(12)]

    async with desk(bounds=Bounds(open_max=3)) as here:
        assert len(here.orchestrator._open) <= 3
        for execution in waiting:
            await here.asked(execution, lambda stamp: messages.Signal(stamp, "go-1", "go", {}))
            assert (await here.ended(execution)).status is Status.COMPLETED


async def test_what_has_steps_under_way_is_not_forgotten_and_a_lost_step_is_sent_again(desk):
    async with desk(bounds=Bounds(open_max=1)) as here:
        here.bus.losing = 8
        started = [await here.start({"n": n}) for n in range(8)]

        for execution in started:
            await completes_with_each_outcome_once(here, execution)


async def test_a_flood_of_one_tenant_waits_at_its_owner_and_another_tenants_step_is_not_behind_it(desk):
    async with desk(working=False, bounds=Bounds(window=4)) as here:
        flood = [await here.start({"n": n}) for n in range(20)]
        other = TenantId("other")
        late = (await here.orchestrator.start(other, WORKFLOW, {"late": True}, timeout_ms=None)).execution

        async def filled() -> bool:
            return (await here.bus.backlog(MAILBOX)).waiting == 5

        await eventually(filled, within_s=5)
        await here.bus.subscribe(MAILBOX, here.worker.receive)

        assert (await here.orchestrator.wait(other, late, lambda state: state.ended, within_s=15)).ended
        for execution in flood:
            await completes_with_each_outcome_once(here, execution)
        first_ten = [request.execution_id for request in here.worker.ran[:10]]
        assert late in first_ten, "it went out beside the flood, not behind it"


async def test_steps_that_wait_in_a_window_are_sent_by_the_next_owner(desk):
    async with desk(working=False, bounds=Bounds(window=2)) as here:
        flood = [await here.start({"n": n}) for n in range(9)]

    async with desk(bounds=Bounds(window=2)) as here:
        for execution in flood:
            await completes_with_each_outcome_once(here, execution)


async def test_the_window_moves_on_when_an_execution_in_it_is_ended_from_outside(desk):
    async with desk(working=False, bounds=Bounds(window=2)) as here:
        stuck = [await here.start({"n": n}) for n in range(2)]
        waiting = await here.start({"n": 9})
        for execution in stuck:
            await here.asked(execution, lambda stamp: messages.Terminate(stamp, "t-1"))
        await here.bus.subscribe(MAILBOX, here.worker.receive)

        await completes_with_each_outcome_once(here, waiting)
