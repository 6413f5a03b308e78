"""What a worker's credential opens on a real NATS server: its own mailboxes and its reports, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.bus.permissions import UnusableUser, control_plane_user, inbox_prefix, worker_user
from agentflow.contracts.message import seal
from agentflow.contracts.pools import SHARED
from agentflow.devstack.nats import NatsServer, nats_server
from agentflow.ids import AgentName, MessageId, TraceId
from agentflow.ports import BusUnavailable
from agentflow.testing import eventually

HEARTBEATS = subjects.of_pool(subjects.HEARTBEATS, "acme")
SAID_BY_WORKERS = (
    subjects.TOOL_CALLS,
    subjects.TOOL_AUDIT,
    subjects.TOOL_ANOMALY,
    subjects.HEARTBEATS,
    subjects.AGENT_STATES,
    subjects.TOOL_DEFINITIONS,
    subjects.step_claims(1),
)
USERS = (control_plane_user("c"), worker_user("worker-1", "w", "acme", ["mine"]))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "nats", users=USERS) as server:
        yield server


def url(server: NatsServer, user: str, password: str) -> str:
    return server.url.replace("nats://", f"nats://{user}:{password}@")


@pytest.fixture
async def buses(server: NatsServer):
    async with (
        jetstream(url(server, "control-plane", "c"), name="control") as control,
        jetstream(url(server, "worker-1", "w"), name="worker", tends_streams=False) as worker,
    ):
        yield control, worker


async def test_a_worker_takes_its_own_steps_and_reports_them(buses):
    control, worker = buses
    taken: asyncio.Queue[object] = asyncio.Queue()
    mailbox = subjects.agent_mailbox("acme", AgentName("mine"), concurrency=1)

    await worker.subscribe(mailbox, taken.put_nowait)
    step = seal(
        id=MessageId("01JD3ZJ4W3E5V8Q2N7M0K1T9XA"),
        trace_id=TraceId("01a1ee9579e2de61808ba365ee58bfe6"),
        span_id="b7ad6b7169203331",
        sender="control_plane",
        to="mine",
        type="request",
        payload={},
        metadata={},
        at_ms=1_700_000_000_000,
    )
    await control.publish(subjects.agent_in("acme", AgentName("mine")), step, dedup_id="1", confirm=True)
    async with asyncio.timeout(10):
        await taken.get()
    heard: list[tuple[str, bytes]] = []
    await control.listen_pools(subjects.HEARTBEATS, lambda pool, raw: heard.append((pool, raw)))

    async def alive() -> bool:
        await worker.broadcast(HEARTBEATS, b"alive")  # again: another connection may not listen yet
        return ("acme", b"alive") in heard

    await eventually(alive)

    async def told(question: bytes) -> bytes:
        return b"answer to " + question

    async def told_acme(pool: str, question: bytes) -> bytes:
        assert pool == "acme"
        return await told(question)

    async def answered(bus: JetStreamBus, subject: str) -> bool:
        try:
            return await bus.request(subject, b"it", within_s=5) == b"answer to it"
        except BusUnavailable:  # nobody listens there yet
            return False

    await control.answer_pools(subjects.TOOL_DEFINITIONS, told_acme)
    await eventually(lambda: answered(worker, subjects.of_pool(subjects.TOOL_DEFINITIONS, "acme")))
    await worker.answer(subjects.of_pool(subjects.TOOL_TESTS, "acme"), told)
    await eventually(lambda: answered(control, subjects.of_pool(subjects.TOOL_TESTS, "acme")))
    line = subjects.of_pool(subjects.worker_line("wrk_1"), "acme")
    await worker.answer(line, told)
    await eventually(lambda: answered(control, line))


MAY_NOT_SAY = (
    "agents.acme.mine.in",
    "agents.acme.other.in",
    "agents.acme.other.out",
    "agents.default.mine.out",
    "workflows.support.out.1",
    *(subjects.workflow_in("support", 1, pool) for pool in ("default", SHARED)),
    *(subjects.of_pool(stem, pool) for stem in SAID_BY_WORKERS for pool in ("default", SHARED)),
    subjects.of_pool(subjects.WORKER_CONTROL, "acme"),
    subjects.of_pool(subjects.worker_line("wrk_1"), "acme"),
    subjects.IDENTITY_CHANGED,
    "$JS.API.CONSUMER.MSG.NEXT.AF_AGENTS.agent_other@acme",
    "$JS.API.CONSUMER.MSG.NEXT.AF_AGENTS.agent_mine@default",
    "$JS.API.CONSUMER.MSG.NEXT.AF_AGENTS.agent_mine@_shared",
    "$JS.API.CONSUMER.MSG.NEXT.AF_MESSAGES.shard_1",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS.agent_other@acme.agents.acme.other.in",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS.agent_mine@acme.agents.acme.other.in",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS.agent_mine@acme.agents.default.mine.in",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS.agent_mine@default.agents.default.mine.in",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS.agent_mine@acme",
    "$JS.API.CONSUMER.CREATE.AF_AGENTS",
    "$JS.API.CONSUMER.DURABLE.CREATE.AF_AGENTS.agent_mine@acme",
    "$JS.API.CONSUMER.DELETE.AF_AGENTS.agent_other@acme",
    "$JS.API.STREAM.CREATE.EVIL",
    "$JS.API.STREAM.UPDATE.AF_AGENTS",
    "$JS.API.STREAM.DELETE.AF_AGENTS",
    "$JS.API.STREAM.PURGE.AF_AGENTS",
    "$JS.API.STREAM.MSG.GET.AF_MESSAGES",
    "$JS.API.DIRECT.GET.AF_MESSAGES",
    "$JS.ACK.AF_AGENTS.agent_other@acme.1.1.1.1.0",
    "$JS.ACK.AF_AGENTS.agent_mine@default.1.1.1.1.0",
    "$SYS.REQ.SERVER.PING",
)
MAY_NOT_HEAR = (
    ">",
    "agents.acme.mine.in",
    "agents.default.mine.in",
    "agents.*.*.in",
    *(subjects.of_pool(subjects.WORKER_CONTROL, pool) for pool in ("default", SHARED)),
    *(subjects.of_pool(subjects.TOOL_TESTS, pool) for pool in ("default", SHARED)),
    *(subjects.of_pool(subjects.worker_line("wrk_1"), pool) for pool in ("default", SHARED)),
    "workers.>",
    subjects.ALL_WORKFLOWS_OUT,
    subjects.ALL_WORKFLOWS_IN,
    *(subjects.of_pool(subjects.TOOL_AUDIT, pool) for pool in ("acme", "default")),
    "tools.>",
    "_INBOX.>",
    "_INBOX_control-plane.>",
    "$JS.>",
    "$SYS.>",
    subjects.IDENTITY_CHANGED,
)


async def test_a_worker_can_neither_say_nor_hear_what_is_not_its_own(server):
    refused: asyncio.Queue[str] = asyncio.Queue()

    async def told(error: Exception) -> None:
        refused.put_nowait(str(error))

    connection = await nats.connect(url(server, "worker-1", "w"), error_cb=told, allow_reconnect=False)
    try:
        for subject in MAY_NOT_SAY:
            await connection.publish(subject, b"{}")
            async with asyncio.timeout(5):
                assert subject.lower() in (await refused.get()).lower()
        for subject in MAY_NOT_HEAR:
            await connection.subscribe(subject)
            async with asyncio.timeout(5):
                assert subject.lower() in (await refused.get()).lower()
        await connection.publish(HEARTBEATS, b"alive")
        await connection.flush()
        assert refused.empty()  # so that the refusals above mean something
    finally:
        await connection.close()


async def test_nobody_comes_in_without_a_credential_or_with_a_wrong_one(server):
    """By hand: the client library leaves its socket open where it is refused."""

    async def answered(**credential: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            await reader.readline()  # what the server says of itself
            writer.write(b"CONNECT " + json.dumps({"verbose": True, **credential}).encode() + b"\r\nPING\r\n")
            async with asyncio.timeout(5):
                return (await reader.readline()).decode()
        finally:
            writer.close()
            await writer.wait_closed()

    assert await answered(user="worker-1", **{"pass": "w"}) == "+OK\r\n"
    for credential in ({}, {"user": "worker-1", "pass": "guess"}, {"user": "nobody", "pass": "w"}, {"auth_token": "w"}):
        assert "Authorization Violation" in await answered(**credential)


def test_a_name_cannot_break_out_of_the_configuration():
    for name in ("", "a.b", 'a", password: "', "a b", "*", ">", "x" * 65):
        with pytest.raises(UnusableUser):
            inbox_prefix(name)
