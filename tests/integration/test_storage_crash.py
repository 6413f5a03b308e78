"""What was confirmed survives: processes and servers are killed in the middle of appends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import Event, ExecutionStarted, StepScheduled, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId
from agentflow.ports import NewEvents, StorageUnavailable
from control_plane.storage.database import database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import differences, revisions, upgrade

TENANT = TenantId("acme")
EXECUTIONS = [ExecutionId(f"exec_{number}") for number in range(5)]

# Prints each version once it is confirmed for all executions, as fast as it can, until it is killed.
WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from test_storage_crash import append_until_stopped

async def main():
    async for version in append_until_stopped(sys.argv[1]):
        print(version, flush=True)

asyncio.run(main())
"""


async def append_until_stopped(dsn: str) -> AsyncIterator[int]:
    """Every version that has been confirmed, one batch over all executions at a time."""
    workflow = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")
    async with database(dsn) as db:
        await upgrade(db)
        store = SqlEventStore(db)
        epochs = await SqlShardLeases(db).acquire([0], "writer", lease_s=60)
        states = {execution: ExecutionState() for execution in EXECUTIONS}
        for version in range(1, 1_000_000):
            batch = []
            for execution in EXECUTIONS:
                event: Event = (
                    ExecutionStarted(1, execution, TENANT, workflow, {}, TraceId("t"))
                    if version == 1
                    else StepScheduled(1, StepPath(f"s{version}"), "s", 1, AgentName("a"), "x" * 300, 1_000)
                )
                # Only the version matters here; folding thousands of open steps would slow the writer down.
                state = evolve(states[execution], event) if version == 1 else states[execution]
                batch.append(NewEvents(execution, TENANT, 0, version - 1, (event,), state))
                states[execution] = state
            await store.append(batch, epochs)
            yield version


async def assert_whole(dsn: str, confirmed: int) -> None:
    """Everything confirmed is there, at most one batch more, the same for all executions, and without gaps."""
    async with database(dsn) as db:
        store = SqlEventStore(db)
        lengths = set()
        for execution in EXECUTIONS:
            versions = [event.version for event in await store.read(TENANT, execution)]
            assert versions == list(range(1, len(versions) + 1))
            lengths.add(len(versions))
    assert len(lengths) == 1
    assert lengths <= {confirmed, confirmed + 1}


@pytest.mark.parametrize("kill_after", [3, 57])
async def test_a_killed_writer_loses_nothing_that_was_confirmed(database_dsn: str, kill_after: int) -> None:
    dsn = database_dsn
    here = str(Path(__file__).parent)
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, dsn, here, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None

    confirmed = 0
    async for line in writer.stdout:
        confirmed = int(line)
        if confirmed == kill_after:
            writer.kill()
    await writer.wait()

    assert confirmed >= kill_after
    await assert_whole(dsn, confirmed)


@pytest.mark.parametrize("kill_after", [3, 57])
async def test_a_killed_postgresql_loses_nothing_that_it_confirmed(tmp_path: Path, kill_after: int) -> None:
    confirmed = 0
    async with postgres_server(tmp_path) as server:
        try:
            async for version in append_until_stopped(server.dsn):
                confirmed = version
                if confirmed == kill_after:
                    server.process.kill()
        except StorageUnavailable:
            pass
        await server.process.wait()

    assert confirmed >= kill_after
    async with postgres_server(tmp_path) as server:
        await assert_whole(server.dsn, confirmed)


# Kills itself in the middle of a migration, after some of its revisions.
MIGRATOR = """
import asyncio, os, signal, sys
from alembic import op
from control_plane.storage.database import database
from control_plane.storage.migrate import differences, revisions, upgrade

def die(*names):
    if "human_tasks" in names:
        os.kill(os.getpid(), signal.SIGKILL)

create = op.create_table
op.create_table = lambda name, *rest, **options: (die(name), create(name, *rest, **options))

async def main():
    async with database(sys.argv[1]) as db:
        await upgrade(db)

asyncio.run(main())
"""


async def test_a_migration_killed_half_way_leaves_nothing_and_can_be_run_again(database_dsn: str) -> None:
    migrator = await asyncio.create_subprocess_exec(sys.executable, "-c", MIGRATOR, database_dsn)
    assert await migrator.wait() == -signal.SIGKILL

    async with database(database_dsn) as db:
        assert (await revisions(db)).current == "none"
        async with asyncio.timeout(30):  # whoever died holds no lock
            await upgrade(db)
        assert await differences(db) == []
