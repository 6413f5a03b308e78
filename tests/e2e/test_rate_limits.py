"""Limits as callers meet them: exact under eight clients at once, and told with every answer."""

import asyncio
import re
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import httpx
import pytest
import websockets
from google.rpc import error_details_pb2, status_pb2

from agentflow.devstack.platform import embedded_platform

ROOT = Path(__file__).parents[2]
BURST, CLIENTS, EACH = 40, 8, 10
NOISIER = 50
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


async def test_eight_clients_at_once_get_exactly_what_the_tenant_may(tmp_path):
    limits = {"AF_API_RATE_LIMIT_BURST": str(BURST), "AF_API_RATE_LIMIT_SUSTAINED": "1/h"}
    agents = ROOT / "templates" / "support" / "agents.yaml"
    async with embedded_platform(tmp_path / "home", agents_file=agents, extra_env=limits) as platform:

        async def client():
            headers = {"Authorization": f"Bearer {platform.api_key}"}
            async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=headers) as http:
                paths = ["/api/v1/workflows/none/execute", "/api/v1/executions"]
                return [
                    await (http.post(paths[0], json={}) if number % 2 else http.get(paths[1])) for number in range(EACH)
                ]

        answers = [answer for some in await asyncio.gather(*(client() for _ in range(CLIENTS))) for answer in some]

    seen = Counter(answer.status_code == 429 for answer in answers)
    assert seen == {True: CLIENTS * EACH - BURST, False: BURST}
    left = [int(answer.headers["x-ratelimit-remaining"]) for answer in answers if answer.status_code != 429]
    assert sorted(left) == list(range(BURST))
    for answer in answers:
        assert answer.headers["x-ratelimit-limit"] == str(BURST)
        assert int(answer.headers["x-ratelimit-reset"]) > 0
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["code"] == "AF1725"


async def test_every_way_in_counts_and_is_refused_alike(tmp_path):
    limits = {"AF_API_RATE_LIMIT_USER_BURST": "3", "AF_API_RATE_LIMIT_USER_SUSTAINED": "1/h"}
    agents = ROOT / "templates" / "support" / "agents.yaml"
    async with embedded_platform(tmp_path / "home", agents_file=agents, extra_env=limits) as platform:
        headers = {"Authorization": f"Bearer {platform.api_key}"}
        url = platform.api_url.replace("http://", "ws://") + "/api/v1/ws"
        (address,) = re.findall(r'"grpc": *"([^"]+)"', platform.control_plane.log.read_text())

        async def over_rest():
            async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=headers) as http:
                return await http.get("/api/v1/agents")

        async def over_websocket():
            async with websockets.connect(url, proxy=None, additional_headers=headers):
                pass

        async def over_grpc():
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary("/agentflow.v1.AgentService/List")
                await call(b"", metadata=(("authorization", headers["Authorization"]),))

        assert (await over_rest()).headers["x-ratelimit-remaining"] == "2"
        await over_websocket()
        await over_grpc()

        refused = await over_rest()
        assert (refused.status_code, refused.headers["x-ratelimit-limit"]) == (429, "3")
        with pytest.raises(websockets.exceptions.InvalidStatus) as denied:
            await over_websocket()
        assert denied.value.response.status_code == 429
        assert int(denied.value.response.headers["retry-after"]) > 60
        with pytest.raises(grpc.aio.AioRpcError) as exhausted:
            await over_grpc()
        assert exhausted.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        told = status_pb2.Status.FromString(dict(exhausted.value.trailing_metadata())["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        assert told.details[-1].Unpack(retry)
        assert retry.retry_delay.seconds > 60


async def test_however_much_one_tenant_asks_no_start_of_another_is_refused(tmp_path):
    limits = {"AF_API_RATE_LIMIT_BURST": str(BURST), "AF_API_RATE_LIMIT_SUSTAINED": "1/h"}
    agents = ROOT / "templates" / "support" / "agents.yaml"
    starts = BURST // 4
    async with embedded_platform(tmp_path / "home", agents_file=agents, extra_env=limits) as platform:

        async def tenant(name, stack):
            """A client of its own, and a workflow to start."""
            root = {"Authorization": f"Bearer {platform.api_key}"}
            async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=root) as http:
                made = (await http.post("/api/v1/tenants", json={"id": name})).json()
            headers = {"Authorization": f"Bearer {made['admin']['api_key']}"}
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=platform.api_url, trust_env=False, timeout=60, headers=headers)
            )
            pushed = await client.post("/api/v1/workflows", content=HOLDS, headers={"Content-Type": "application/yaml"})
            assert pushed.status_code == 201, pushed.text
            return client

        async def started(client, times):
            return [(await client.post("/api/v1/workflows/holds/execute", json={})).status_code for _ in range(times)]

        async with AsyncExitStack() as stack:
            noisy, quiet = await tenant("noisy", stack), await tenant("quiet", stack)
            flood = [started(noisy, NOISIER * starts // CLIENTS) for _ in range(CLIENTS)]
            wanted, *flooded = await asyncio.gather(started(quiet, starts), *flood)

    assert Counter(wanted) == {202: starts}
    told = Counter(status for one in flooded for status in one)
    assert told == {202: BURST - 1, 429: NOISIER * starts // CLIENTS * CLIENTS - BURST + 1}  # one was the registering
