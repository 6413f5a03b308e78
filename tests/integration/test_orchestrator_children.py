"""Executions that start executions: they begin once, and their ends come back."""

from collections import Counter

import pytest

from agentflow.execution import messages
from agentflow.execution.events import ChildEnded, ExecutionStarted, StepSucceeded
from agentflow.execution.state import Status
from agentflow.ids import ExecutionId
from agentflow.testing import eventually
from control_plane.orchestrator.orchestrator import ExecutionNotFound
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import FAMILY, TENANT, Desk, children_of

desk = orchestrator_desk.desk


async def test_children_run_beside_each_other_and_their_ends_come_back(desk):
    async with desk() as here:
        parent = await here.start(workflow=FAMILY)

        state = await here.ended(parent)

        assert state.status is Status.COMPLETED
        assert state.output == {"left": {"of": "left"}, "right": {"of": "right"}}
        for child in await children_of(here, parent):
            born = await here.orchestrator.state(TENANT, child)
            assert born.parent is not None
            assert (born.parent.execution, born.trace) == (parent, state.trace)


async def test_a_family_whose_owner_died_is_taken_up_whole_and_no_child_is_born_twice(desk):
    async with desk(working=False) as here:
        here.bus.losing = 10
        parent = await here.start(workflow=FAMILY)

    async with desk() as here:
        assert (await here.ended(parent)).status is Status.COMPLETED
        for child in await children_of(here, parent):
            assert Counter(await here.story(child))[ExecutionStarted] == 1
            assert Counter(await here.story(child))[StepSucceeded] == 2


@pytest.mark.parametrize("how", ["before", "after"])
async def test_an_end_of_a_child_whose_commit_got_no_answer_is_told_once(desk, how):
    async with desk() as here:

        def lose_the_first_end(batch):
            return how if any(isinstance(event, ChildEnded) for new in batch for event in new.events) else None

        here.store.lose = lose_the_first_end
        parent = await here.start(workflow=FAMILY)

        assert (await here.ended(parent)).status is Status.COMPLETED
        assert Counter(await here.story(parent))[ChildEnded] == 2


async def test_a_child_that_cannot_be_started_fails_its_parent_with_the_reason(desk):
    async with desk(missing=("line",)) as here:
        state = await here.ended(await here.start(workflow=FAMILY))

        assert state.status is Status.FAILED
        assert state.fault is not None
        assert state.fault.code == "child_not_started"
        assert "There is no workflow `line`" in state.fault.message


async def all_open(desk: Desk, executions: list[ExecutionId]) -> bool:
    try:
        return all([not (await desk.orchestrator.state(TENANT, one)).ended for one in executions])
    except ExecutionNotFound:
        return False


async def test_cancelling_a_parent_cancels_its_children(desk):
    async with desk(working=False) as here:
        parent = await here.start(workflow=FAMILY)
        children = await children_of(here, parent)
        await eventually(lambda: all_open(here, children), within_s=5)

        await here.asked(parent, lambda stamp: messages.Cancel(stamp, "c1", "no longer wanted"))

        assert (await here.ended(parent)).status is Status.CANCELLED
        for child in children:
            assert (await here.ended(child)).status is Status.CANCELLED
