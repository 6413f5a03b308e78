"""A whole deployment in which every line between parts is encrypted, and both ends show who they are."""

import asyncio
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import nats
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from agentflow.bus.nats_jetstream import jetstream
from agentflow.bus.permissions import control_plane_user, worker_user
from agentflow.devstack.nats import nats_server
from agentflow.devstack.process import ChildProcess, ServerDidNotStart
from agentflow.ports import BusUnavailable
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client
from agentflow.sdk.errors import ControlPlaneAway, NoTrust
from agentflow.settings import inherited_environment
from agentflow.tls import TlsFiles, UnusableCertificate, client_context

AF = Path(sys.executable).with_name("af")
CONTROL_PLANE_READY = re.compile(r'^(?=.*control_plane\.ready).*"http":\s*"https://[^:]+:(?P<port>\d+)', re.MULTILINE)
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents: {echo: {type: function, call: echoing:echo}}
"""
ECHO = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: echo, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: say
    final_states: [say]
    states: {say: {agent: echo, input: "${input}"}}
"""


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("tls") / "certs"
    subprocess.run([AF, "certs", "init", made], check=True, capture_output=True, timeout=60)
    return made


def files(certs: Path, part: str) -> TlsFiles:
    return TlsFiles(certs / "ca.pem", certs / f"{part}.pem", certs / f"{part}.key")


@asynccontextmanager
async def tls_front(certs: Path, dsn: str) -> AsyncIterator[str]:
    """PostgreSQL under TLS, as a connection pooler in front of it would serve it: the wheel's own was built without.

    Whoever shows no certificate of our authority does not reach the database.
    """
    behind = urlsplit(dsn)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "ca.pem")
    context.load_cert_chain(certs / "postgres.pem", certs / "postgres.key")
    context.verify_mode = ssl.CERT_REQUIRED
    open_lines: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_lines.add(task)
        task.add_done_callback(open_lines.discard)
        try:
            wanted = await reader.readexactly(8)
            if int.from_bytes(wanted[4:]) != 80877103:  # it does not ask for TLS: there is nothing else here
                return
            writer.write(b"S")
            await writer.start_tls(context)
            far_reader, far_writer = await asyncio.open_connection(behind.hostname, behind.port)
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"postgres://{behind.username}@localhost:{port}{behind.path}"
    finally:
        server.close()
        for task in list(open_lines):
            task.cancel()
        await asyncio.gather(*open_lines, return_exceptions=True)


async def test_a_deployment_works_when_every_line_in_it_is_under_mutual_tls(tmp_path, certs, postgres_dsn):
    (tmp_path / "echoing.py").write_text("def echo(input):\n    return input\n")
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "echo.yaml").write_text(ECHO)
    users = control_plane_user("c"), worker_user("worker-1", "w", "default", ["echo"])

    def environment(part: str, **more: str) -> dict[str, str]:
        return {
            **inherited_environment(),
            "AF_HOME": str(tmp_path / part),
            "AF_TLS_CA_FILE": str(certs / "ca.pem"),
            "AF_TLS_CERT_FILE": str(certs / f"{part}.pem"),
            "AF_TLS_KEY_FILE": str(certs / f"{part}.key"),
            "AF_LOG_FORMAT": "json",
            **more,
        }

    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(nats_server(tmp_path / "nats", users=users, tls=files(certs, "nats")))
        dsn = await stack.enter_async_context(tls_front(certs, postgres_dsn))
        artifacts = {"AF_ARTIFACTS_URL": f"file://{tmp_path}/artifacts"}
        served = environment(
            "control-plane",
            AF_NATS_URL=f"tls://control-plane:c@localhost:{bus.port}",
            AF_DB_DSN=dsn,
            AF_DB_TLS="true",
            AF_HTTP_LISTEN="127.0.0.1:0",
            AF_GRPC_LISTEN="127.0.0.1:0",
            AF_TLS_CLIENT_CA_FILE=str(certs / "ca.pem"),
            AF_BOOTSTRAP_FILE=str(tmp_path / "admin.key"),
            **artifacts,
        )
        plane = await started("control_plane", tmp_path, served, CONTROL_PLANE_READY, stack)
        working = environment(
            "worker",
            AF_NATS_URL=f"tls://worker-1:w@localhost:{bus.port}",
            AF_AGENTS_FILE=str(tmp_path / "agents.yaml"),
            **artifacts,
        )
        await started("worker", tmp_path, working, re.compile(r"worker\.ready"), stack)
        url, key = f"https://localhost:{plane}", (tmp_path / "admin.key").read_text().strip()

        asked = environment("client", AF_API_URL=url, AF_API_KEY=key)
        del asked["AF_TLS_CA_FILE"]
        await af("--ca", str(certs / "ca.pem"), "workflow", "push", str(tmp_path / "echo.yaml"), environment=asked)
        ran = await af("--ca", str(certs / "ca.pem"), "run", "echo", "-i", '{"n": 1}', "--json", environment=asked)
        assert '"n":1' in ran.replace(" ", "")

        async with Client(url, api_key=key, tls=files(certs, "client")) as client:
            assert (await client.execute("echo", {"n": 2}, wait=True)).output == {"n": 2}
        assert await asyncio.to_thread(blocking_answer, url, key, files(certs, "client")) == {"n": 3}

        await strangers_are_turned_away(url, key, certs, bus.port, served)
        await grpc_takes_only_who_shows_a_certificate((tmp_path / "control_plane.log").read_text(), certs)


async def af(*words: str, environment: dict[str, str]) -> str:
    ran = await asyncio.to_thread(
        subprocess.run, [AF, *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def blocking_answer(url: str, key: str, tls: TlsFiles) -> object:
    with BlockingClient(url, api_key=key, tls=tls) as client:
        return client.execute("echo", {"n": 3}, wait=True).output


async def started(
    module: str, folder: Path, environment: dict[str, str], ready: re.Pattern[str], stack: AsyncExitStack
) -> str:
    process = await ChildProcess.start(
        module, [sys.executable, "-m", module], log=folder / f"{module}.log", env=environment, ready=ready,
        ready_within_s=60,
    )  # fmt: skip
    stack.push_async_callback(process.stop)
    found = ready.search((folder / f"{module}.log").read_text())
    assert found
    return found.groupdict().get("port", "")


async def strangers_are_turned_away(
    url: str, key: str, certs: Path, nats_port: int, environment: dict[str, str]
) -> None:
    """Each with everything but one: a certificate, or trust in the authority."""
    for tls in (TlsFiles(ca=certs / "ca.pem"), TlsFiles(certificate=certs / "client.pem", key=certs / "client.key")):
        async with Client(url, api_key=key, tls=tls, retries=0) as client:
            with pytest.raises((NoTrust, ControlPlaneAway)):  # a server that wants a certificate may just hang up
                await client.executions()
        with pytest.raises(BusUnavailable):
            async with jetstream(
                f"tls://control-plane:c@localhost:{nats_port}", name="stranger", tls=client_context(tls),
                connect_within_s=2,
            ):  # fmt: skip
                pass
    nobody = {name: value for name, value in environment.items() if name != "AF_TLS_CA_FILE"}
    with pytest.raises(ServerDidNotStart):  # it trusts neither the bus nor the database
        await ChildProcess.start(
            "stranger", [sys.executable, "-m", "control_plane"], log=certs / "stranger.log", env=nobody,
            ready=CONTROL_PLANE_READY, ready_within_s=30,
        )  # fmt: skip


async def grpc_takes_only_who_shows_a_certificate(log: str, certs: Path) -> None:
    (port,) = re.findall(r'"grpc":\s*"[^:"]+:(\d+)"', log)
    ca, mine, key = ((certs / name).read_bytes() for name in ("ca.pem", "client.pem", "client.key"))

    async def asked(credentials: grpc.ChannelCredentials) -> None:
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            health = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
            await health.Check(health_pb2.HealthCheckRequest(), timeout=10)

    await asked(grpc.ssl_channel_credentials(ca, key, mine))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked(grpc.ssl_channel_credentials(ca))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_address_that_demands_tls_is_never_spoken_to_in_the_clear(tmp_path, certs):
    """A server, or whoever stands before it, that says it speaks no TLS would otherwise get the password."""
    heard: list[bytes] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"headers":true}\r\n')
        with suppress(OSError):
            heard.append(await reader.read(1024))
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(BusUnavailable, match="does not speak TLS"):
            async with jetstream(
                f"tls://control-plane:secret@localhost:{port}", name="careful", connect_within_s=2,
                tls=client_context(files(certs, "client")),
            ):  # fmt: skip
                pass
    finally:
        server.close()
    assert not any(b"secret" in said for said in heard)


async def test_without_tls_the_encrypted_bus_answers_nobody(tmp_path, certs):
    async with nats_server(tmp_path / "nats", tls=files(certs, "nats")) as server:
        with pytest.raises((nats.errors.Error, OSError, ssl.SSLError)):
            await nats.connect(server.url, allow_reconnect=False, connect_timeout=2, max_reconnect_attempts=0)


def test_files_that_are_no_certificates_are_named(tmp_path):
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(UnusableCertificate, match=r"ca\.pem"):
        client_context(TlsFiles(ca=tmp_path / "ca.pem"))
    with pytest.raises(UnusableCertificate, match=r"away\.pem"):
        client_context(TlsFiles(certificate=tmp_path / "away.pem", key=tmp_path / "away.key"))
