"""What executions cost, on the running platform: from a tool's price and an agent's word to the report."""

import json

import pytest

from agentflow.devstack.platform import embedded_platform
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client
from agentflow.testing import eventually
from tests.e2e.test_af import af

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  writer: {type: function, call: "spending:write"}
  miser: {type: function, call: "spending:fail"}
registered_tools: {}
"""
CODE = """
def write(input, context):
    context.spent("model x", dollars="0.0021", input=900, cache_read=50, output=310)
    context.spent("model local", input=7)
    return {}

def fail(input, context):
    context.spent("model x", dollars="0.5")
    raise ValueError("in vain")
"""
TOOL = """
apiVersion: agentflow/v1
kind: Tool
metadata: {name: priced.echo, version: 1.0.0}
spec:
  run: {type: command, argv: [/bin/cat]}
  input: {type: object}
  cost: {dollars_per_call: 0.1}
"""
WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: spends, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: write
    final_states: [sorry]
    states:
      write: {agent: writer, on_success: call}
      call: {tool: priced.echo, input: {a: 1}, on_success: vain}
      vain: {agent: miser, retry: {max_attempts: 1}, on_error: sorry, on_success: sorry}
      sorry: {succeed: {}}
"""


@pytest.fixture
async def platform(tmp_path):
    (tmp_path / "spending.py").write_text(CODE)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    async with embedded_platform(tmp_path / "home", agents_file=tmp_path / "agents.yaml") as platform:
        yield platform


async def test_everything_that_was_used_is_in_the_report_exactly_once(platform, tmp_path):
    async with Client(platform.api_url, api_key=platform.api_key) as api:
        await api.push_tool(TOOL)
        await api.push_workflow(WORKFLOW)
        assert (await api.costs()).items == []
        started = await api.execute("spends", {}, wait=True)
        assert started.status == "completed", started

        (tenant,) = (await api.costs(scope="tenant")).items
        resources = {line.name: line for line in (await api.costs(scope="resource")).items}
        agents = {line.name: line.dollars for line in (await api.costs(scope="agent")).items}
        (workflow,) = (await api.costs(scope="workflow", period="this_month")).items
        assert (await api.costs(period="yesterday")).items == []
        usage = await api.identity.tenant_use("default")

    assert (tenant.dollars, tenant.cost_unknown, tenant.observations) == ("0.602100", 1, 4)
    assert resources["tool priced.echo"].dollars == "0.100000"
    assert resources["model x"].dollars == "0.502100"  # what a failed attempt has used is gone as well
    assert (resources["model local"].dollars, resources["model local"].cost_unknown) == ("0.000000", 1)
    assert tenant.tokens["input"] == 907
    assert (tenant.tokens["cache_read"], tenant.tokens["output"]) == (50, 310)
    assert agents == {"miser": "0.500000", "tools": "0.100000", "writer": "0.002100"}
    assert workflow.name == "spends"
    assert usage.dollars_this_month == pytest.approx(0.6021)
    with BlockingClient(platform.api_url, api_key=platform.api_key) as api:
        assert api.costs().items[0].dollars == "0.602100"

    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}
    shown = af("costs", "--by", "resource", cwd=tmp_path, **env)
    assert "tool priced.echo" in shown.stdout, shown.stderr
    told = json.loads(af("costs", "--by", "agent", "--json", cwd=tmp_path, **env).stdout)
    assert told["items"][0]["dollars"] == "0.500000"


async def test_a_tenant_that_has_spent_its_month_starts_nothing_more(platform):
    async with Client(platform.api_url, api_key=platform.api_key) as api:
        await api.push_tool(TOOL)
        await api.push_workflow(WORKFLOW)
        await api.identity.change_tenant("default", quotas={"dollars_per_month": 0.6})
        assert (await api.execute("spends", {}, wait=True)).status == "completed"

        async def refused():
            try:
                await api.execute("spends", {})
            except Exception as error:  # noqa: BLE001
                return getattr(error, "code", "") == "AF1724"

        await eventually(refused)
