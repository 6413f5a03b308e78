"""Several orchestrators over one database and one bus: who owns what, and what happens when one goes."""

from collections import Counter

from agentflow.execution import messages
from agentflow.execution.events import ExecutionStarted, SignalReceived
from agentflow.execution.state import Status
from agentflow.testing import eventually
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import FAMILY, PATIENT, children_of, completes_with_each_outcome_once

desk = orchestrator_desk.desk


async def test_two_replicas_share_the_shards_and_a_request_finds_its_owner(desk):
    async with desk(alone=False, lease_s=3) as one, desk(alone=False, lease_s=3, working=False) as two:
        await eventually(lambda: (len(one.epochs), len(two.epochs)) == (8, 8), within_s=10)
        assert set(one.epochs) | set(two.epochs) == set(range(16))
        started = [await one.start(workflow=PATIENT), await two.start(workflow=PATIENT)]

        for execution in started:  # each asked at the replica that does not own it, too
            await one.asked(execution, lambda stamp: messages.Pause(stamp, "p1"))
            await two.asked(execution, lambda stamp: messages.Resume(stamp, "r1"))
            await two.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", {"n": 7}))

        for execution in started:
            assert (await one.ended(execution)).output == {"n": 7}
            assert (await two.ended(execution)).output == {"n": 7}
            assert Counter(await one.story(execution))[SignalReceived] == 1


async def test_a_family_spread_over_two_replicas_comes_together(desk):
    async with desk(alone=False, lease_s=3) as one, desk(alone=False, lease_s=3, working=False) as two:
        await eventually(lambda: (len(one.epochs), len(two.epochs)) == (8, 8), within_s=10)

        parents = [await (one, two)[number % 2].start(workflow=FAMILY) for number in range(6)]

        for parent in parents:
            state = await one.ended(parent)
            assert state.status is Status.COMPLETED, state.fault
            for child in await children_of(one, parent):
                assert Counter(await one.story(child))[ExecutionStarted] == 1


async def test_a_replica_that_leaves_hands_its_work_over_at_once(desk):
    async with desk(alone=False, lease_s=30) as staying:
        async with desk(alone=False, lease_s=30, working=False) as leaving:
            await eventually(lambda: (len(staying.epochs), len(leaving.epochs)) == (8, 8), within_s=10)
            executions = [await leaving.start({"n": number}) for number in range(5)]

        await eventually(lambda: len(staying.epochs) == 16, within_s=10)
        for execution in executions:
            await completes_with_each_outcome_once(staying, execution)


async def test_a_replica_that_falls_silent_is_replaced_and_can_write_nothing_more(desk):
    async with desk(alone=False, lease_s=2) as living, desk(alone=False, lease_s=2, working=False) as silent:
        await eventually(lambda: (len(living.epochs), len(silent.epochs)) == (8, 8), within_s=10)
        execution = await silent.start(workflow=PATIENT)
        ownership = silent.orchestrator._ownership
        held = dict(ownership.epochs)

        async def nothing(*_, **__) -> None:
            """As a process that was stopped: it neither renews nor hears that its leases ran out."""

        ownership.turn = nothing
        await eventually(lambda: len(living.epochs) == 16, within_s=10)

        assert dict(ownership.epochs) == held  # it still believes
        await silent.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", 1))
        assert (await living.ended(execution)).output == 1
        assert len(ownership.epochs) < len(held)  # the refused append taught it


async def test_shards_that_could_not_be_taken_up_are_tried_again_and_not_held_unserved(desk):
    async with desk(alone=False, lease_s=1) as here:
        execution = await here.start(workflow=PATIENT)
        ownership = here.orchestrator._ownership
        here.bus.refusing = 1
        await ownership.forget(list(ownership.epochs), why="a test")
        await ownership._leases.release(ownership.replica)

        await eventually(lambda: here.bus.refusing == 0 and len(here.epochs) == 16, within_s=10)
        await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", 1))
        assert (await here.ended(execution)).output == 1
