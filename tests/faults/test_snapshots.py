"""A control plane that dies in the middle of taking a snapshot leaves all of it or nothing, and it can be taken again.

It is stopped where everything of the snapshot lies in the artifact store and the row that lists it is not committed.
"""

import asyncio
import hashlib

import pytest

from agentflow.errors import Unavailable
from agentflow.sdk.snapshots import Snapshot
from agentflow.testing import eventually
from tests.faults.deployment import deployed
from tests.faults.failpoints import Switchboard


async def test_a_plane_killed_while_it_takes_a_snapshot_leaves_none_and_the_next_takes_it_whole(
    nats, database_dsn, tmp_path
):
    async with deployed(tmp_path, database_dsn, nats) as here:
        await here.worker()
        board = Switchboard(tmp_path / "points")
        first = await here.plane(module="tests.faults.failpoints", FAILPOINTS=str(board.folder))
        here.let_go()
        execution = await here.start(first, "quick", key="one")
        await eventually(lambda: ended(first, execution), within_s=30)

        board.arm("Database.write/commit")
        path = f"/executions/{execution}/snapshots"
        asking = asyncio.create_task(first.client._ask("POST", path, Snapshot, {}))  # without a key: sent once
        await eventually(board.has_struck, within_s=20)
        left = list((here.folder / "artifacts").glob("*/snap_*/*.zst"))
        first.kill()
        with pytest.raises(Unavailable):
            await asking

        second = await here.plane()
        assert len(left) == 1, "its content was there already, and nobody was told"
        assert (await second.client.snapshots.list(execution=execution)).items == []
        taken = await eventually(lambda: take(second, execution), within_s=20)
        content = b"".join([chunk async for chunk in second.client.snapshots.content(taken)])
        assert hashlib.sha256(content).hexdigest() == taken.digest
        assert left[0].name.startswith(taken.digest), "what the first had made was the same"
        assert (await second.client.records.replay(taken.id)).identical
        assert [one.id for one in (await second.client.snapshots.list(execution=execution)).items] == [taken.id]


async def ended(plane, execution):
    return (await plane.client.execution(execution)).status == "completed"


async def take(plane, execution):
    return await plane.client.snapshots.take(execution)
