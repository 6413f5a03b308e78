"""UA-7 a: a hundred recorded executions come out as they were, byte for byte, without a socket and for nothing."""

import asyncio
import socket
from functools import reduce
from pathlib import Path

import pytest
from sqlalchemy import func, select

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.devstack.platform import embedded_platform
from agentflow.execution.replay import chained
from agentflow.ids import DEFAULT_TENANT, ExecutionId, TenantId, UlidSource
from agentflow.ports import Shelf
from agentflow.sdk.client import Client
from control_plane.registry.tools import ToolRegistry
from control_plane.registry.workflows import WorkflowRegistry
from control_plane.replay.replayer import Recording, Replayer
from control_plane.storage.database import database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.tables import executions, metadata
from control_plane.storage.tools import SqlTools
from control_plane.storage.workflows import SqlWorkflows

ROOT = Path(__file__).parents[2]
TICKETS = (
    "I forgot my password and the reset link in the email has expired.",
    "My invoice of last month is wrong and I want my money back.",
    "Something else altogether.",
)
RUNS = 100


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The home of a platform that has run a hundred tickets, by agents and tools, and is gone."""

    async def run() -> None:
        agents = ROOT / "templates" / "support" / "agents.yaml"
        async with (
            embedded_platform(tmp_path / "home", agents_file=agents) as platform,
            Client(platform.api_url, api_key=platform.api_key) as api,
        ):
            await api.push_workflow((ROOT / "templates" / "support" / "workflow.yaml").read_text())
            for some in range(0, RUNS, 20):
                given = [{"customer": f"c{n}", "ticket": TICKETS[n % 3]} for n in range(some, some + 20)]
                ended = await asyncio.gather(*(api.execute("support", one, wait=True) for one in given))
                assert {one.status for one in ended} == {"completed"}

    asyncio.run(run())
    return tmp_path / "home"


def test_a_hundred_recorded_executions_are_decided_again_byte_for_byte_without_a_socket(recorded, monkeypatch):
    asyncio.run(_replayed(recorded, monkeypatch))


async def _replayed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("a replay has opened a socket")

    clock = SystemClock()
    async with database(f"sqlite:///{home}/agentflow.db") as db:
        store = SqlEventStore(db)
        tools = ToolRegistry(SqlTools(db), clock=clock)
        registry = WorkflowRegistry(SqlWorkflows(db), ids=UlidSource(clock.now_ms), clock=clock, tools=tools)
        claims = ClaimCheck(await open_artifacts(f"file://{home}/artifacts"))

        async def recording_of(tenant: TenantId, name: str) -> Recording:
            return Recording(ExecutionId(name), store, Shelf(tenant, name))

        replayer = Replayer(recording_of, registry.program, claims)
        ids = await _all(db)
        before = await _rows(db)
        for way in ("connect", "connect_ex", "bind", "sendto"):
            monkeypatch.setattr(socket.socket, way, no_network)
        monkeypatch.setattr(socket, "getaddrinfo", no_network)

        for execution in ids:
            events = [one.event for one in await store.read(DEFAULT_TENANT, execution)]
            again = await replayer.replay(DEFAULT_TENANT, execution)
            assert again is not None
            assert again.identical
            assert (again.agreed, again.digest) == (len(events), reduce(chained, events, "")), "byte for byte"

        assert len(ids) == RUNS
        assert await _rows(db) == before, "nothing was recorded and nothing was spent"


async def _all(db):
    async with db.system_read() as connection:
        return list(await connection.scalars(select(executions.c.id)))


async def _rows(db):
    """How much there is in every table: events, costs and records of tools among them."""
    async with db.system_read() as connection:
        counts = {table.name: select(func.count()).select_from(table) for table in metadata.sorted_tables}
        return {name: await connection.scalar(count) for name, count in counts.items()}
