"""Holding shards: take the leases, renew them while the block runs, give them back when it ends.

One control plane at a time for now: the newest to start takes every shard at once, and the one before it stops with
`ShardLost`. That is safe without waiting, because no append passes under an old epoch.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.ports import ShardLeases, ShardLost

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def holding(
    leases: ShardLeases, *, shards: int, holder: str, lease_s: float, clock: Clock
) -> AsyncIterator[Mapping[int, int]]:
    """The epochs of all shards, ours until the block ends or somebody takes them."""
    epochs = await leases.acquire(range(shards), holder, lease_s=lease_s, steal=True)
    _log.info("shards.held", shards=len(epochs), holder=holder)
    try:
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(_renew(leases, epochs, holder, lease_s, clock), name="leases")
            try:
                yield epochs
            finally:
                renewing.cancel()
    finally:
        with suppress(Unavailable):  # then they expire by themselves
            await leases.release(holder)


async def _renew(leases: ShardLeases, epochs: Mapping[int, int], holder: str, lease_s: float, clock: Clock) -> None:
    while True:
        await clock.sleep(lease_s / 3)
        try:
            held = await leases.renew(holder, lease_s=lease_s)
        except Unavailable as error:
            _log.warning("leases.not_renewed", reason=error.message)  # nobody else can reach them either, or will
            continue
        lost = [shard for shard, epoch in epochs.items() if held.get(shard) != epoch]
        if lost:
            raise ShardLost(lost)
