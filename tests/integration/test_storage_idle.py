"""An idle deployment leaves its database alone: every query on the wire is counted, whoever makes it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.step import Heartbeat
from agentflow.devstack.nats import NatsServer
from agentflow.devstack.process import ChildProcess
from agentflow.execution.events import ExecutionStarted, SignalAwaited, WorkflowRef
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import DEFAULT_TENANT, UlidSource, WorkflowId, shard_of
from agentflow.ports import NewEvents
from agentflow.settings import inherited_environment
from control_plane.storage.database import database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

WATCHED_S = 6.0
QUERIES_PER_S_MAX = 2.0


class CountingProxy:
    """Between a client and PostgreSQL: passes everything on, and counts what asks for something to be done."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.queries = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        answers = asyncio.create_task(self._pass_on(there, writer))
        try:
            await self._count(reader, back)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for stream in (back, writer):
                stream.close()

    async def _count(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        started = False
        while True:
            kind = b"" if not started else await reader.readexactly(1)
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length) - 4)
            # Simple queries, and executions of prepared ones. The hello has no kind; asking for TLS is not yet hello.
            self.queries += kind in (b"Q", b"E")
            started = started or body[:4] != (80877103).to_bytes(4)
            back.write(kind + length + body)
            await back.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def counting(dsn: str) -> AsyncIterator[tuple[CountingProxy, str]]:
    port = int(dsn.rpartition(":")[2].partition("/")[0])
    proxy = CountingProxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    here = server.sockets[0].getsockname()[1]
    try:
        yield proxy, dsn.replace(f":{port}/", f":{here}/")
    finally:
        server.close()
        await server.wait_closed()


async def test_an_idle_control_plane_asks_its_database_at_most_twice_a_second(
    nats: NatsServer, postgres_dsn: str, tmp_path: Path
) -> None:
    assert await queries_of_an_idle_one(nats, postgres_dsn, tmp_path) <= QUERIES_PER_S_MAX * WATCHED_S


async def test_ten_thousand_waiting_executions_and_a_thousand_agents_change_nothing_about_that(
    nats: NatsServer, postgres_dsn: str, tmp_path: Path
) -> None:
    await ten_thousand_wait(postgres_dsn)
    async with jetstream(nats.url, name="workers") as bus, asyncio.TaskGroup() as workers:
        beating = workers.create_task(a_thousand_agents_live(bus))
        asked = await queries_of_an_idle_one(nats, postgres_dsn, tmp_path)
        beating.cancel()

    assert asked <= QUERIES_PER_S_MAX * WATCHED_S
    assert '"executions": 10000' in (tmp_path / "control_plane.log").read_text()  # it had really taken them up


async def queries_of_an_idle_one(nats: NatsServer, dsn: str, tmp_path: Path) -> int:
    """How often a control plane that is left alone asks its database while it is watched."""
    async with counting(dsn) as (proxy, proxied):
        served = await ChildProcess.start(
            "control-plane",
            [sys.executable, "-m", "control_plane"],
            log=tmp_path / "control_plane.log",
            ready=re.compile("control_plane.ready"),
            ready_within_s=60,
            env={
                **inherited_environment(),
                "AF_HOME": str(tmp_path / "home"),
                "AF_DB_DSN": proxied,
                "AF_NATS_URL": nats.url,
                "AF_HTTP_LISTEN": "127.0.0.1:0",
                "AF_GRPC_LISTEN": "127.0.0.1:0",
                "AF_LOG_FORMAT": "json",
            },
        )
        try:
            assert proxy.queries > 10  # it was really seen on the way
            await asyncio.sleep(1)
            before = proxy.queries
            await asyncio.sleep(WATCHED_S)
            return proxy.queries - before
        finally:
            await served.stop()


async def ten_thousand_wait(dsn: str) -> None:
    """Executions that wait for a signal, half of them with a deadline far away."""
    ids = UlidSource(SystemClock().now_ms)
    workflow = WorkflowRef(WorkflowId("wf_1"), "patient", "1.0.0", "d" * 64)
    async with database(dsn) as db:
        await upgrade(db)
        leases = SqlShardLeases(db)
        epochs = await leases.acquire(range(16), "before", lease_s=600)
        store = SqlEventStore(db)
        for _ in range(20):
            batch = []
            for number in range(500):
                execution = ids.execution()
                now = SystemClock().now_ms()
                deadline_ms = now + 10**9 if number % 2 else None
                started = ExecutionStarted(now, execution, DEFAULT_TENANT, workflow, {}, ids.trace(), deadline_ms)
                waits = SignalAwaited(now, "go", "go")
                state = evolve(evolve(ExecutionState(), started), waits)
                shard = shard_of(execution, 16)
                batch.append(NewEvents(execution, DEFAULT_TENANT, shard, 0, (started, waits), state))
            await store.append(batch, epochs)
        await leases.release("before")


async def a_thousand_agents_live(bus: JetStreamBus) -> None:
    ids = UlidSource(SystemClock().now_ms)
    workers = [(ids.worker(), {f"agent-{worker}-{n}": 0 for n in range(10)}) for worker in range(100)]
    while True:
        now = SystemClock().now_ms()
        for worker, agents in workers:
            await bus.broadcast(
                subjects.of_pool(subjects.HEARTBEATS, "default"),
                msgspec.json.encode(Heartbeat(worker, agents, now, now)),
            )
        await asyncio.sleep(1)
