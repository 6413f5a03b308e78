"""An idle deployment leaves its database alone: every query on the wire is counted, whoever makes it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentflow.devstack.nats import NatsServer
from agentflow.devstack.process import ChildProcess
from agentflow.settings import inherited_environment

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
    async with counting(postgres_dsn) as (proxy, dsn):
        served = await ChildProcess.start(
            "control-plane",
            [sys.executable, "-m", "control_plane"],
            log=tmp_path / "control_plane.log",
            ready=re.compile("control_plane.ready"),
            env={
                **inherited_environment(),
                "AF_HOME": str(tmp_path / "home"),
                "AF_DB_DSN": dsn,
                "AF_NATS_URL": nats.url,
                "AF_HTTP_LISTEN": "127.0.0.1:0",
                "AF_GRPC_LISTEN": "127.0.0.1:0",
            },
        )
        try:
            starting = proxy.queries
            assert starting > 10  # it was really seen on the way
            await asyncio.sleep(1)
            before = proxy.queries
            await asyncio.sleep(WATCHED_S)
            asked = proxy.queries - before
        finally:
            await served.stop()

    assert asked <= QUERIES_PER_S_MAX * WATCHED_S
