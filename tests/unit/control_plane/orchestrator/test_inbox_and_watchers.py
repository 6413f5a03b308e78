import asyncio

import pytest

from agentflow import limits
from agentflow.execution.messages import Stamp, TimeReached
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from control_plane.orchestrator.inbox import Arrival, Inbox, Overloaded
from control_plane.orchestrator.watchers import Watchers

ONE = ExecutionId("exec_1")
LOUD, QUIET = TenantId("loud"), TenantId("quiet")


def arrival():
    return Arrival(ONE, TimeReached(Stamp(1)), lambda state: None, lambda error: None)


async def test_the_loop_takes_everything_that_has_arrived_at_once():
    inbox = Inbox()
    for _ in range(5):
        inbox.put(arrival())

    assert len(inbox.take()) == 5
    assert len(inbox) == 0


async def test_a_batch_is_bounded_and_the_rest_waits_for_the_next():
    inbox = Inbox()
    for _ in range(limits.COMMIT_BATCH_MAX + 3):
        inbox.put(arrival())

    assert len(inbox.take()) == limits.COMMIT_BATCH_MAX
    assert len(inbox.take()) == 3


async def test_whoever_waits_at_an_empty_inbox_hears_of_the_next_arrival():
    inbox = Inbox()
    waiting = asyncio.create_task(inbox.stirred())
    await asyncio.sleep(0)
    assert not waiting.done()

    inbox.put(arrival())

    await waiting
    assert len(inbox.take()) == 1


async def test_a_tenant_that_floods_the_door_is_refused_while_others_still_come_in():
    inbox = Inbox()
    for _ in range(limits.COMMIT_QUEUE_TENANT_MAX):
        inbox.admit(LOUD, arrival())

    with pytest.raises(Overloaded) as refused:
        inbox.admit(LOUD, arrival())
    assert refused.value.retryable
    inbox.admit(QUIET, arrival())


async def test_new_work_is_refused_once_too_much_waits_but_results_are_still_taken():
    inbox = Inbox()
    for number in range(limits.COMMIT_QUEUE_MAX):
        inbox.admit(TenantId(f"tenant {number % 8}"), arrival())

    with pytest.raises(Overloaded):
        inbox.admit(QUIET, arrival())
    inbox.put(arrival())


async def test_starts_and_results_share_a_batch_so_that_neither_waits_for_the_other():
    inbox = Inbox()
    starts = [arrival() for _ in range(limits.COMMIT_BATCH_MAX)]
    results = [arrival() for _ in range(limits.COMMIT_BATCH_MAX)]
    for start, result in zip(starts, results, strict=True):
        inbox.admit(LOUD, start)
        inbox.put(result)

    batch = {id(one) for one in inbox.take()}

    assert len(batch) == limits.COMMIT_BATCH_MAX
    assert len(batch & {id(one) for one in starts}) == limits.COMMIT_BATCH_MAX // 2
    assert len(batch & {id(one) for one in results}) == limits.COMMIT_BATCH_MAX // 2


async def test_a_quiet_tenants_start_is_in_the_next_batch_whatever_a_loud_one_has_waiting():
    inbox = Inbox()
    for _ in range(limits.COMMIT_QUEUE_TENANT_MAX):
        inbox.admit(LOUD, arrival())
    quiet = arrival()
    inbox.admit(QUIET, quiet)

    assert any(one is quiet for one in inbox.take())


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
