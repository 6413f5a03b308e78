"""What the gRPC server does about connections: it asks the silent ones, lets the dead ones go, and those that nag.

Spoken by hand, frame by frame, because every client library answers pings by itself.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from agentflow import limits
from control_plane.rpc import guard
from control_plane.rpc.server import create_server
from control_plane.service import ControlPlane

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
ENHANCE_YOUR_CALM = 0xB


async def all_parts_ready():
    return {"database": True}


@asynccontextmanager
async def serving(**options) -> AsyncIterator[int]:
    """The real server; of the control plane behind it only what tells its health, which is all these tests ask."""
    behind = SimpleNamespace(identity=None, trail=None, parts_ready=all_parts_ready)
    server = create_server(cast(ControlPlane, behind), **options)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)


class Line:
    """One connection: what is said on it, and what the server says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, kind: int, flags: int = 0, payload: bytes = b"") -> None:
        self._writer.write(struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + b"\0\0\0\0" + payload)
        await self._writer.drain()

    async def heard(self) -> AsyncIterator[tuple[int, int, bytes]]:
        """Kind, flags and content of every frame, until the server hangs up."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(10):
                while True:
                    head = await self._reader.readexactly(9)
                    yield head[3], head[4], await self._reader.readexactly(int.from_bytes(head[:3]))


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(PREFACE)
        line = Line(reader, writer)
        await line.say(SETTINGS)
        yield line
    finally:
        writer.close()


QUICKLY = {"keepalive_s": 0.2, "answer_s": 0.2}


async def test_a_connection_on_which_nobody_answers_any_more_is_given_up():
    async with serving(**QUICKLY) as port, line_to(port) as line:
        asked = [flags for kind, flags, _ in [frame async for frame in line.heard()] if kind == PING]

    assert asked == [0], "it was asked once, and then given up"


async def test_a_silent_connection_whose_other_end_answers_stays():
    async with serving(**QUICKLY) as port, line_to(port) as line:
        answered = 0
        async for kind, flags, payload in line.heard():
            if kind == PING and not flags & ACK:
                await line.say(PING, ACK, payload)
                answered += 1
            if answered == 5:  # several times as long as a dead one is kept
                break

    assert answered == 5


async def test_who_asks_too_often_whether_we_are_there_is_told_so_and_let_go():
    async with serving() as port, line_to(port) as line:
        told = []
        await line.say(PING, 0, b"whatever")
        async for kind, _, payload in line.heard():
            if kind == GOAWAY:
                told.append((int.from_bytes(payload[4:8]), payload[8:]))
            elif kind == PING and not told:  # answered: ask again at once
                await line.say(PING, 0, b"whatever")

    assert told[0] == (ENHANCE_YOUR_CALM, b"too_many_pings")


async def test_who_asks_as_often_as_they_may_is_answered():
    async with serving(keepalive_s=60, answer_s=0.2) as port, line_to(port) as line:
        answered = 0
        await line.say(PING, 0, b"whatever")
        async for kind, flags, _ in line.heard():
            assert kind != GOAWAY
            if kind == PING and flags & ACK:
                answered += 1
                if answered == 5:
                    break
                await asyncio.sleep(0.3)  # the pace is what is tested
                await line.say(PING, 0, b"whatever")

    assert answered == 5


async def test_a_method_that_nobody_listed_is_refused_before_anything_else(monkeypatch):
    method = "/agentflow.v1.AgentService/List"
    monkeypatch.delitem(guard.PERMISSIONS, method)
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="says nothing about who may call it"):
            await channel.unary_unary(method)(b"")


def test_callers_may_ask_more_often_than_they_are_asked():
    assert limits.RPC_KEEPALIVE_ANSWER_S < limits.RPC_KEEPALIVE_S


@pytest.mark.parametrize(
    ("described", "status"),
    [(False, grpc.StatusCode.UNIMPLEMENTED), (True, grpc.StatusCode.UNAUTHENTICATED)],
    ids=["off", "on"],
)
async def test_which_services_there_are_is_told_only_where_it_is_wanted_and_then_to_who_is_known(described, status):
    async with serving(describes_itself=described) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(iter([b""])).read()

    assert refused.value.code() is status
