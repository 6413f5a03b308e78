"""Tenants share a queue fairly, whatever each of them puts in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.ids import TenantId
from control_plane.orchestrator.fair_queue import FairQueue

LOUD, QUIET = TenantId("loud"), TenantId("quiet")


def drained(queue: FairQueue[str]) -> list[str]:
    return [queue.take() for _ in range(len(queue))]


def test_one_item_of_a_quiet_tenant_waits_for_one_item_of_a_loud_one():
    queue: FairQueue[str] = FairQueue()
    for number in range(1_000):
        queue.put(LOUD, f"loud {number}")
    queue.put(QUIET, "quiet")

    assert drained(queue)[:3] == ["loud 0", "quiet", "loud 1"]


def test_within_a_tenant_priority_goes_first_and_equals_in_their_order():
    queue: FairQueue[str] = FairQueue()
    queue.put(LOUD, "first")
    queue.put(LOUD, "urgent", priority=5)
    queue.put(LOUD, "second")

    assert drained(queue) == ["urgent", "first", "second"]


def test_priority_does_not_reach_into_another_tenants_turn():
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.put(LOUD, f"loud {number}", priority=100)
    queue.put(QUIET, "quiet")

    assert drained(queue).index("quiet") == 1


def test_an_empty_queue_says_so():
    with pytest.raises(LookupError):
        FairQueue[str]().take()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2))))
def test_nothing_is_lost_and_no_tenant_is_overtaken_twice_while_it_waits(puts):
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number, (tenant, priority) in enumerate(puts):
        queue.put(TenantId(tenant), (tenant, number), priority=priority)

    taken = drained(queue)

    assert sorted(taken) == sorted((tenant, number) for number, (tenant, _) in enumerate(puts))
    left = {tenant: sum(1 for other, _ in puts if other == tenant) for tenant in "abc"}
    since = dict.fromkeys("abc", 0)
    for tenant, _ in taken:
        left[tenant] -= 1
        since[tenant] = 0
        for other in "abc":
            if other != tenant and left[other]:
                since[other] += 1
                assert since[other] <= 2  # at most one item of each of the two others
