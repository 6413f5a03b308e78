"""Holding shards: renewed while the work goes on, given back at the end, and given up when somebody took them."""

import asyncio

import pytest

from agentflow.clock import ControlledClock
from agentflow.ports import ShardLost, StorageUnavailable
from control_plane.orchestrator.tenure import holding


class Leases:
    def __init__(self) -> None:
        self.holder: str | None = None
        self.epoch = 0
        self.renewed = 0
        self.away = False

    async def acquire(self, shards, holder, *, lease_s, steal=False):
        self.holder, self.epoch = holder, self.epoch + 1
        return dict.fromkeys(shards, self.epoch)

    async def renew(self, holder, *, lease_s):
        if self.away:
            raise StorageUnavailable("it is away")
        self.renewed += 1
        return dict.fromkeys(range(4), self.epoch) if holder == self.holder else {}

    async def release(self, holder, shards=None):
        if holder == self.holder:
            self.holder = None

    async def leases(self):
        return []


async def test_leases_are_renewed_in_time_and_released_at_the_end() -> None:
    leases, clock = Leases(), ControlledClock()

    async with holding(leases, shards=4, holder="me", lease_s=9, clock=clock) as epochs:
        assert epochs == {0: 1, 1: 1, 2: 1, 3: 1}
        await asyncio.sleep(0)
        for _ in range(10):
            await clock.advance(3)
        assert leases.renewed >= 9

    assert leases.holder is None


async def test_who_lost_its_shards_stops() -> None:
    leases, clock = Leases(), ControlledClock()

    async def work() -> None:
        async with holding(leases, shards=4, holder="me", lease_s=9, clock=clock):
            await leases.acquire(range(4), "another", lease_s=9)
            await asyncio.sleep(0)
            await clock.advance(3)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await work()

    assert [type(error) for error in ended.value.exceptions] == [ShardLost]
    assert leases.holder == "another"  # what is not ours is not given back


async def test_a_database_that_is_away_for_a_while_costs_nothing() -> None:
    leases, clock = Leases(), ControlledClock()

    async with holding(leases, shards=4, holder="me", lease_s=9, clock=clock):
        await asyncio.sleep(0)
        leases.away = True
        await clock.advance(3)
        await clock.advance(3)
        leases.away = False
        await clock.advance(3)
        await clock.advance(3)
        assert leases.renewed >= 1
