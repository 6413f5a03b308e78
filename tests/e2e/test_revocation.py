"""Whoever loses a right loses what they had open with it: a WebSocket, server-sent events, a gRPC stream."""

import asyncio
import json
import re
import time

import grpc
import httpx
import pytest
import websockets

from agentflow.sdk.client import Client
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc

OUT_WITHIN_S = 5.0  # the promise is a minute; without a bus it would take `CREDENTIAL_RECHECK_S`


@pytest.fixture
async def watcher(api):
    """A service account that may look, and a key of it."""
    account = await api.identity.add_service_account("watcher", roles=["viewer"])
    key = await api.identity.add_api_key("watching", user=account.id)
    yield account.id, key
    await api.identity.change_user(account.id, disabled=True)


async def over_websocket(platform, bearer, is_open):
    url = platform.api_url.replace("http://", "ws://") + "/api/v1/ws"
    headers = {"Authorization": f"Bearer {bearer}"}
    async with websockets.connect(url, proxy=None, additional_headers=headers) as socket:
        await socket.send(json.dumps({"type": "subscribe"}))
        await socket.recv()
        is_open.set()
        await socket.wait_closed()
        return socket.close_code == 1008


async def over_sse(platform, bearer, is_open):
    async with (
        httpx.AsyncClient(base_url=platform.api_url, trust_env=False, timeout=60) as http,
        http.stream("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {bearer}"}) as answer,
    ):
        assert answer.status_code == 200
        async for _ in answer.aiter_lines():
            is_open.set()
    return True


async def over_grpc(platform, bearer, is_open):
    ready = re.findall(r'"grpc": *"([^"]+)"', platform.control_plane.log.read_text())
    async with grpc.aio.insecure_channel(ready[-1]) as channel:
        watching = pb_grpc.ExecutionServiceStub(channel).Watch(
            pb.WatchRequest(), metadata=(("authorization", f"Bearer {bearer}"),)
        )
        await watching.read()
        is_open.set()
        return await watching.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


async def revoke_the_key(api, account, key):
    await api.identity.revoke_api_key(key.id)


async def disable_the_account(api, account, key):
    await api.identity.change_user(account, disabled=True)


async def take_the_role_away(api, account, key):
    await api.identity.change_user(account, roles=["worker"])


@pytest.mark.parametrize("way", [over_websocket, over_sse, over_grpc])
@pytest.mark.parametrize("lose", [revoke_the_key, disable_the_account, take_the_role_away])
async def test_what_is_open_ends_when_its_right_does(platform, api, watcher, way, lose):
    account, key = watcher
    is_open = asyncio.Event()
    watching = asyncio.create_task(way(platform, key.key, is_open))
    async with asyncio.timeout(20):
        await is_open.wait()
    began = time.monotonic()

    await lose(api, account, key)

    async with asyncio.timeout(20):
        assert await watching
    assert time.monotonic() - began < OUT_WITHIN_S


async def test_who_logs_out_takes_along_only_what_was_opened_with_that_token(platform, api):
    async with Client(platform.api_url) as anybody:
        one, other = [await anybody.identity.exchange_api_key(platform.api_key) for _ in range(2)]
    opened = [asyncio.Event(), asyncio.Event()]
    ending, staying = [
        asyncio.create_task(over_sse(platform, token.access_token, is_open))
        for token, is_open in zip((one, other), opened, strict=True)
    ]
    async with asyncio.timeout(20):
        for is_open in opened:
            await is_open.wait()

    async with Client(platform.api_url, token=one.access_token) as client:
        await client.identity.logout()

    async with asyncio.timeout(20):
        assert await ending
    assert not staying.done()
    staying.cancel()
    await asyncio.gather(staying, return_exceptions=True)
