"""Estimates on the running platform: what is said before a run, and what it then costs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import NotFound
from agentflow.sdk.client import Client
from tests.e2e.test_af import af

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  reader: {type: function, call: "pricing:read"}
  writer: {type: function, call: "pricing:write"}
  silent: {type: function, call: "pricing:silent"}
registered_tools: {}
"""
CODE = """
def read(input, context):
    size = 900 + 10 * (input["n"] % 7)
    context.spent("model small", dollars=f"0.{size:06}", input=size)
    return {"long": input["n"] % 4 == 0}

def write(input, context):
    size = 4000 + 100 * (input["n"] % 3)
    context.spent("model large", dollars=f"0.{size * 10:06}", input=size, output=50)
    return {}

def silent(input, context):
    return {}
"""
TOOL = """
apiVersion: agentflow/v1
kind: Tool
metadata: {name: priced.echo, version: 1.0.0}
spec:
  run: {type: command, argv: [/bin/cat]}
  input: {type: object}
  cost: {dollars_per_call: 0.01}
"""
WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: pages, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: read
    final_states: [done]
    states:
      read:
        agent: reader
        input: {n: "${input.n}"}
        transitions: [{condition: "output.long", to: write}, {to: call}]
      write:
        map: {over: "${input.parts}", do: {agent: writer, input: {n: "${item}"}}}
        on_success: call
      call: {tool: priced.echo, input: {a: 1}, on_success: done}
      done: {succeed: {}}
"""
SILENT = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: hush, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: a
    final_states: [b]
    states:
      a: {agent: silent, on_success: b}
      b: {agent: reader, input: {n: 1}}
"""


@pytest.fixture
async def platform(tmp_path: Path, database_dsn: str) -> AsyncIterator[EmbeddedPlatform]:
    (tmp_path / "pricing.py").write_text(CODE)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    env = {"AF_DB_DSN": database_dsn}
    async with embedded_platform(tmp_path / "home", agents_file=tmp_path / "agents.yaml", extra_env=env) as platform:
        yield platform


async def test_what_is_estimated_is_what_the_next_runs_cost(platform, tmp_path, record_property):
    async with Client(platform.api_url, api_key=platform.api_key) as api:
        await api.push_tool(TOOL)
        pushed = await api.push_workflow(WORKFLOW)
        await api.push_workflow(SILENT)

        before = await api.estimate("pages")
        steps = {step.name: step for step in before.steps}
        assert before.executions == 0
        assert before.dollars.upper is None, "a map has no bound before it was seen"
        assert (steps["call"].basis, steps["call"].dollars.expected) == ("declared", "0.010000")
        assert {one.name for one in before.unknown} == {"read", "write.do"}, "never as if they cost nothing"
        assert steps["read"].dollars.expected is None

        async def spent(numbers):
            total = (await api.costs(period="all")).items
            already = float(total[0].dollars) if total else 0.0
            for n in numbers:
                done = await api.execute("pages", {"n": n, "parts": [n, n + 1, n + 2]}, wait=True)
                assert done.status == "completed", done
            return float((await api.costs(period="all")).items[0].dollars) - already

        await spent(range(24))
        after = await api.estimate(pushed.id)
        assert (after.executions, after.unknown) == (24, [])
        actual = await spent(range(24, 48)) / 24
        error = abs(float(after.dollars.expected) - actual) / actual
        record_property("measured", f"cost of an execution: estimated {after.dollars.expected}, was {actual:.6f}")
        assert error <= 0.12
        assert float(after.dollars.expected) <= float(after.dollars.upper)
        found = {step.name: step for step in after.steps}
        assert (found["write.do"].basis, found["write.do"].runs.expected) == ("step", 0.75)
        assert found["read"].dollars.observations == 24

        assert (await api.estimate(after.plan)).workflow == after.workflow, "a plan is known by its hash as well"
        hushed = await api.estimate("hush")
        assert [step.basis for step in hushed.steps] == ["none", "agent"], "its agent has told its price elsewhere"
        assert [one.name for one in hushed.unknown] == ["a"]
        with pytest.raises(NotFound):
            await api.estimate("f" * 64)

    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}
    told = json.loads(af("workflow", "estimate", "pages", "--json", cwd=tmp_path, **env).stdout)
    assert told["workflow"]["name"] == "pages"
    shown = af("workflow", "estimate", "hush", cwd=tmp_path, **env)
    assert "not in the dollars: a" in shown.stdout, shown.stderr
