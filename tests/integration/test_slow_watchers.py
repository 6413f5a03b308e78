"""A watcher who reads too slowly is told so and let go, is never buffered for without bound, and loses nothing by it.

The whole control plane in this process, over real sockets; its feed keeps few events, so that falling behind is quick.
"""

import asyncio
import json
import re
import secrets
import socket as sockets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import websockets

from agentflow.devstack.nats import NatsServer
from agentflow.sdk.client import Client
from agentflow.testing import eventually
from control_plane.service import ControlPlane
from control_plane.wiring import control_plane
from tests.served_plane import plane_settings, served

KEPT, SIGNALS = 20, 120
HOLDS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: holds, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""


def small_socket() -> sockets.socket:
    """With buffers so small that little hides in them."""
    made = sockets.socket()
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 32_768)
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, 32_768)
    return made


class Plane:
    def __init__(self, behind: ControlPlane, port: int, api_key: str) -> None:
        self.behind = behind
        self.port = port
        self.api_key = api_key
        self.feed = behind.live

    @asynccontextmanager
    async def socket(self, **options):
        url, headers = f"ws://127.0.0.1:{self.port}/api/v1/ws", {"Authorization": f"Bearer {self.api_key}"}
        async with websockets.connect(url, proxy=None, additional_headers=headers, **options) as opened:
            yield opened

    async def far_behind(self) -> None:
        """More happens than the feed keeps."""
        async with Client(f"http://127.0.0.1:{self.port}", api_key=self.api_key) as api:
            await api.push_workflow(HOLDS)
            execution = (await api.execute("holds", {})).execution_id
            for number in range(SIGNALS):  # with a text that no socket can compress
                await api.signal(execution, "noise", {"n": number, "text": secrets.token_hex(10_000)})
            newest = await self.behind.live._events.newest()
        await eventually(lambda: self.feed._head >= newest)
        assert len(self.feed._kept) <= KEPT


@pytest.fixture
async def plane(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Plane]:
    async with control_plane(plane_settings(tmp_path, nats.url)) as behind:
        behind.live._kept_max = KEPT
        async with served(behind, small_socket()) as port:
            yield Plane(behind, port, (tmp_path / "admin.key").read_text().strip())


async def connected(port: int) -> sockets.socket:
    made = small_socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def rest_of(socket):
    with suppress(websockets.exceptions.ConnectionClosed):
        async with asyncio.timeout(30):
            async for raw in socket:
                yield json.loads(raw)


async def test_a_slow_reader_of_a_websocket_is_told_let_go_and_misses_nothing_when_it_comes_back(plane: Plane) -> None:
    seen = []
    async with plane.socket(sock=await connected(plane.port), max_queue=1) as slow:
        await slow.send(json.dumps({"type": "subscribe", "id": "all"}))
        assert json.loads(await slow.recv())["type"] == "subscribed"
        await plane.far_behind()
        messages = [message async for message in rest_of(slow)]
        assert (slow.close_code, slow.close_reason) == (1013, "too slow")
    *before, dropped = messages
    seen += [message["seq"] for message in before if message["type"] == "event"]
    assert (dropped["type"], dropped["id"], dropped["code"]) == ("dropped", "all", "AF1014")
    assert dropped["hint"]
    assert dropped["seq"] == seen[-1]

    async with plane.socket() as back:
        await back.send(json.dumps({"type": "subscribe", "after": dropped["seq"]}))
        async with asyncio.timeout(30):
            while len(seen) < SIGNALS + 2:
                message = json.loads(await back.recv())
                seen += [message["seq"]] if message["type"] == "event" else []

    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)


async def test_a_slow_reader_of_server_sent_events_is_told_and_let_go(plane: Plane) -> None:
    reader, writer = await asyncio.open_connection(sock=await connected(plane.port), limit=1024)
    asked = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {plane.api_key}\r\n\r\n"
    writer.write(asked.encode())
    await reader.readuntil(b"retry: 500")
    await eventually(lambda: plane.feed._readers == 1)

    await plane.far_behind()

    heard = b""
    async with asyncio.timeout(30):
        while not heard.endswith(b"0\r\n\r\n"):  # the answer's last chunk: the stream has ended
            heard += await reader.read(65_536)
    writer.close()
    last = re.findall(rb"^id: (\d+)$", heard, re.MULTILINE)[-1]
    told = re.search(rb"event: dropped\ndata: (.*)\n", heard)
    assert told
    assert (json.loads(told[1])["code"], json.loads(told[1])["seq"]) == ("AF1014", int(last))
