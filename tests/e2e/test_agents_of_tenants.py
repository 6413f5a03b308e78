"""Agents belong to the tenant of their workers: no other tenant sees them, and no other tenant's steps reach them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import httpx
import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import Forbidden
from agentflow.sdk.client import Client
from agentflow.testing import eventually

ECHO = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: echo, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: say
    final_states: [say]
    states: {say: {agent: AGENT, input: "${input}", timeout: 1h}}
"""
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents: {echo: {type: function, call: echoing:echo}}
registered_tools: {}
"""


class Tenants(NamedTuple):
    platform: EmbeddedPlatform
    default: Client
    acme: Client


@pytest.fixture
def opened(tmp_path):
    @asynccontextmanager
    async def tenants(**environment: str) -> AsyncIterator[Tenants]:
        (tmp_path / "echoing.py").write_text("def echo(input):\n    return input\n")
        (tmp_path / "agents.yaml").write_text(AGENTS)
        async with AsyncExitStack() as stack:
            platform = await stack.enter_async_context(
                embedded_platform(tmp_path / "home", agents_file=tmp_path / "agents.yaml", extra_env=environment)
            )
            default = await stack.enter_async_context(Client(platform.api_url, api_key=platform.api_key))
            made = await default.identity.add_tenant("acme")
            acme = await stack.enter_async_context(Client(platform.api_url, api_key=made.admin.api_key))
            for client in (default, acme):
                await client.push_workflow(ECHO.replace("AGENT", "echo"))
            yield Tenants(platform, default, acme)

    return tenants


async def names(client: Client) -> list[str]:
    return [agent.name async for agent in client.iter_agents()]


async def test_a_tenants_agents_are_its_own_and_do_no_other_tenants_work(opened):
    async with opened(AF_WORKER_TENANT="acme") as (platform, default, acme):
        waiting = await default.execute("echo", {"whose": "default"})
        done = await acme.execute("echo", {"whose": "acme"}, wait=True)

        assert (done.status, done.output) == ("completed", {"whose": "acme"})

        async def seen() -> bool:
            return "echo" in await names(acme)

        await eventually(seen)
        assert await names(default) == []
        async with httpx.AsyncClient(base_url=f"{platform.api_url}/api/v1") as http:
            of_default = {"Authorization": f"Bearer {platform.api_key}"}
            assert (await http.get("/agents/echo", headers=of_default)).status_code == 404
            assert (await http.post("/tools/json.transform/test", headers=of_default, json={"input": {}})).json()[
                "code"
            ] == "AF1435"  # no worker of theirs hosts tools
        assert (await default.execution(waiting.execution_id)).status == "running"

        # Of agents, `tools` is only hosted, and counted all the same.
        assert (await acme.identity.tenant_use("acme")).agents == 2
        await default.identity.change_tenant("acme", quotas={"agents": 2})
        with pytest.raises(Forbidden) as refused:
            await acme.push_workflow(ECHO.replace("name: echo", "name: more").replace("AGENT", "another"))
        assert refused.value.code == "AF1723"


async def test_shared_agents_are_seen_and_used_by_every_tenant(opened):
    async with opened(AF_SHARED_AGENTS="*") as (_, default, acme):
        for client in (default, acme):
            assert (await client.execute("echo", {"n": 1}, wait=True)).output == {"n": 1}

        async def seen() -> bool:
            shown = [agent for client in (default, acme) async for agent in client.iter_agents()]
            return [agent.shared for agent in shown if agent.name == "echo"] == [True, True]

        await eventually(seen)
