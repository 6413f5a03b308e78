"""The orchestrator drives executions to their end, on a real database and a real bus."""

import asyncio

import pytest

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.events import StepScheduled, StepSucceeded
from agentflow.execution.state import Status
from agentflow.ids import StepPath, TenantId, WorkerId
from agentflow.ports import NewEvents, VersionConflict
from control_plane.orchestrator.orchestrator import ExecutionNotFound
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import AGENT, MAILBOX, PATIENT, TENANT, completes_with_each_outcome_once

desk = orchestrator_desk.desk


async def test_an_execution_is_driven_to_its_end(desk):
    async with desk() as here:
        execution = await here.start({"n": 1})

        await completes_with_each_outcome_once(here, execution)
        assert (await here.ended(execution)).output == {"n": 1}
        keys = {request.effect_key for request in here.worker.ran}
        assert keys == {f"acme/{execution}/first", f"acme/{execution}/second"}


async def test_an_idle_database_gets_the_first_of_many_decisions_at_once(desk):
    async with desk() as here:
        sizes: list[int] = []
        here.store.lose = lambda batch: sizes.append(len(batch))
        many = 3 * limits.COMMIT_FIRST_MAX

        await asyncio.gather(*(here.orchestrator.start(TENANT, PATIENT, {}, timeout_ms=None) for _ in range(many)))

        assert sum(sizes) == many
        assert sizes[0] <= limits.COMMIT_FIRST_MAX, "the others are decided while it writes"
        assert len(sizes) <= 4, "and go together"


async def test_what_was_open_is_taken_up_by_the_next_owner(desk):
    async with desk(working=False) as here:
        here.bus.losing = 10  # the first owner commits, and dies before anything is sent
        execution = await here.start()

    async with desk() as here:
        await completes_with_each_outcome_once(here, execution)


async def test_a_second_writer_makes_the_owner_read_again_and_go_on(desk):
    async with desk(working=False) as here:
        execution = await here.start()
        state = await here.orchestrator.state(TENANT, execution)
        first = state.in_flight["first"]
        stolen = StepSucceeded(first.at_ms, first.path, 1, "by another owner", WorkerId("wrk_2"), 1, 2)
        after = StepScheduled(first.at_ms, StepPath("second"), "second", 1, AGENT, None, 60_000)
        elsewhere = NewEvents(execution, TENANT, 0, state.version, (stolen, after), state)
        await here.store.append([elsewhere], here.epochs)

        with pytest.raises(VersionConflict):
            await here.store.append([elsewhere], here.epochs)
        await here.bus.subscribe(MAILBOX, here.worker.receive)

        await completes_with_each_outcome_once(here, execution)


async def test_a_step_too_large_to_send_fails_at_once_with_the_reason(desk):
    async with desk() as here:
        execution = await here.start({"text": "x" * 2_000_000})

        state = await here.ended(execution)

        assert state.status is Status.FAILED
        assert state.ended_at_ms is not None
        assert state.ended_at_ms - state.started_at_ms <= 1_000
        assert isinstance(state.fault, StepFault)
        assert state.fault.code == "not_sendable"


async def test_an_execution_of_another_tenant_does_not_exist(desk):
    async with desk() as here:
        execution = await here.start()

        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.state(TenantId("other"), execution)
