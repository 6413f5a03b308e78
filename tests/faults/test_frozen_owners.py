"""F-6: owners of shards stand still past their lease, at every failpoint there is, and wake up again.

Three control planes are frozen again and again, each at one failpoint after the other, while a fourth takes over what
they had; under traffic that brings every one of them by all failpoints.
"""

import asyncio
import time
from contextlib import suppress
from itertools import count

from agentflow.errors import AgentFlowError
from agentflow.testing import eventually
from control_plane.storage.database import database
from control_plane.storage.leases import SqlShardLeases
from tests.faults.deployment import Deployment, Plane, deployed
from tests.faults.failpoints import Switchboard, failpoints

LEASE_S = 1.0
FROZEN = 3
HELD = 24
# A plane comes by these before it owns anything, and never again.
ONLY_AT_START = ("MessageBus.listen",)
# These need somebody else to come, go or die: first, while there is most of that.
FIRST = ("MessageBus.backlog", "ShardLeases.release")


async def asking(here: Deployment, plane: Plane, held: list[str]) -> None:
    """Whatever clients may want, until cancelled. While the plane stands still they wait."""
    for number in count():
        with suppress(AgentFlowError, OSError):
            for workflow in ("nap", "limited", "quick"):
                started = await here.start(plane, workflow, key=f"{plane.process.pid}/{workflow}/{number}")
                if started is not None:
                    await plane.client.history(started)
            await plane.client.signal(held[number % len(held)], "unheard")
            await plane.client.execution(started or held[0])
        await asyncio.sleep(0.1)


async def freezing(here: Deployment, plane: Plane, board: Switchboard, points: list[str], leases: SqlShardLeases):
    """At each of these points: past its lease, until others own what it had."""
    for point in points:
        board.arm(point)
        plane.go_on()
        try:
            await eventually(board.has_struck, within_s=30)
        except AssertionError:
            raise AssertionError(f"nobody came by {point}: the traffic must lead there") from None
        over_s = time.monotonic() + LEASE_S

        async def all_is_owned(over_s: float = over_s) -> bool:
            # A lease that runs after this moment is not the frozen one's.
            return time.monotonic() > over_s and all(one.left_s > 0 for one in await leases.leases())

        await eventually(all_is_owned, within_s=30)
        await here.evidence.note_owners()
    plane.go_on()


async def test_an_owner_frozen_at_any_failpoint_past_its_lease_writes_nothing_when_it_wakes(
    nats, postgres_dsn, tmp_path
):
    async with deployed(tmp_path, postgres_dsn, nats) as here, database(postgres_dsn) as db:
        doomed = await here.worker()
        await here.worker()
        quick = {"AF_LEASE_S": str(LEASE_S)}
        survivor = await here.plane(**quick)
        boards = [Switchboard(here.folder / f"points-{number}") for number in range(FROZEN)]
        planes = [await here.plane(module="tests.faults.failpoints", FAILPOINTS=str(b.folder), **quick) for b in boards]
        held = [await here.start(survivor, "line", key=f"held/{number}") for number in range(HELD)]
        await eventually(lambda: here.ran("patient") == HELD, within_s=20)
        traffic = [asyncio.ensure_future(asking(here, plane, held)) for plane in (survivor, *planes)]
        doomed.kill()

        points = [point for point in failpoints() if not point.startswith(ONLY_AT_START)]
        points.sort(key=lambda point: not point.startswith(FIRST))
        await asyncio.gather(
            *(
                freezing(here, plane, board, points[at::FROZEN], SqlShardLeases(db))
                for at, (plane, board) in enumerate(zip(planes, boards, strict=True))
            )
        )
        for each in traffic:
            each.cancel()
        await asyncio.gather(*traffic, return_exceptions=True)
        here.let_go()

        await here.check()
        passed = set.union(*(board.passed() for board in boards))
        assert set(failpoints()) - passed == set(), "nobody came by these"
        assert "EventStore.append/fenced" in passed, "no late append was refused"
