import asyncio

import pytest

from agentflow import limits
from agentflow.execution.messages import Stamp, TimeReached
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId
from control_plane.orchestrator.inbox import Arrival, Inbox, Overloaded
from control_plane.orchestrator.watchers import Watchers

ONE = ExecutionId("exec_1")


def arrival():
    return Arrival(ONE, TimeReached(Stamp(1)), lambda state: None, lambda error: None)


async def test_the_loop_takes_everything_that_has_arrived_at_once():
    inbox = Inbox()
    for _ in range(5):
        inbox.put(arrival())

    assert len(await inbox.take()) == 5
    assert len(inbox) == 0


async def test_a_batch_is_bounded_and_the_rest_waits_for_the_next():
    inbox = Inbox()
    for _ in range(limits.COMMIT_BATCH_MAX + 3):
        inbox.put(arrival())

    assert len(await inbox.take()) == limits.COMMIT_BATCH_MAX
    assert len(await inbox.take()) == 3


async def test_taking_from_an_empty_inbox_waits_for_the_next_arrival():
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    assert not taking.done()

    inbox.put(arrival())

    assert len(await taking) == 1


async def test_new_work_is_refused_once_too_much_waits_but_results_are_still_taken():
    inbox = Inbox()
    for _ in range(limits.COMMIT_QUEUE_MAX):
        inbox.admit(arrival())

    with pytest.raises(Overloaded) as refused:
        inbox.admit(arrival())
    assert refused.value.retryable
    inbox.put(arrival())


async def test_a_watcher_is_told_of_the_first_state_it_wants():
    watchers = Watchers()
    moved = watchers.expect(ONE, lambda state: state.version >= 2)

    watchers.committed(ExecutionState(version=1, execution=ONE))
    assert not moved.done()
    watchers.committed(ExecutionState(version=2, execution=ONE))

    assert (await moved).version == 2


async def test_a_watcher_that_gives_up_leaves_nothing_behind():
    watchers = Watchers()
    moved = watchers.expect(ONE, lambda state: True)
    moved.cancel()
    await asyncio.sleep(0)

    assert watchers._waiting == {}
