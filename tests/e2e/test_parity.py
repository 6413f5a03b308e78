"""The same scenarios end the same on both kinds of deployment: SQLite beside an embedded bus, PostgreSQL beside a NATS.

What differs by nature (ids, times, who ran it) is left out; everything else must be equal.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from agentflow.devstack.nats import nats_server
from agentflow.devstack.platform import embedded_platform
from agentflow.devstack.process import ChildProcess
from agentflow.errors import AgentFlowError
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from agentflow.testing import eventually

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  add: {type: function, call: "arithmetic:add"}
  stumble: {type: function, call: "arithmetic:stumble"}
registered_tools: {}
"""
MODULE = """
def add(input):
    return {"n": input["n"] + 1}

def stumble(input, context):
    if context.attempt < input["until"]:
        raise RuntimeError("not yet")
    return {"attempts": context.attempt}
"""
HEAD = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: NAME, version: 1.0.0, tags: [parity]}\nspec:\n"
MACHINES = {
    "line": """
  planner: fsm
  fsm:
    initial_state: one
    final_states: [two]
    states:
      one: {agent: add, input: {n: "${input.n}"}, on_success: two}
      two: {agent: add, input: {n: "${output.n}"}}
""",
    "crowd": """
  planner: fsm
  fsm:
    initial_state: all
    final_states: [all]
    states:
      all: {map: {over: "${input.items}", as: item, concurrency: 3, do: {agent: add, input: {n: "${item}"}}}}
""",
    "stubborn": """
  planner: fsm
  fsm:
    initial_state: try
    final_states: [try]
    states:
      try: {agent: stumble, input: {until: "${input.until}"}, retry: {max_attempts: 3, initial: 10ms}}
""",
    "asking": """
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [after]
    states:
      hold: {wait: {signal: go}, timeout: 1h, on_success: after}
      after: {agent: add, input: {n: "${output.n}"}}
""",
    "tree": """
  planner: behavior_tree
  tree:
    sequence:
      - action: {name: first, agent: add, input: {n: "${input.n}"}}
      - action: {name: second, agent: add, input: {n: "${input.n}"}}
""",
    "family": """
  planner: fsm
  fsm:
    initial_state: child
    final_states: [child]
    states:
      child: {subworkflow: {name: line, version: "^1.0"}, input: {n: "${input.n}"}, timeout: 1m}
""",
}


async def scenarios(client: Client) -> dict[str, Any]:
    """What each came to, as anybody could see it."""
    seen: dict[str, Any] = {}

    async def noted(name: str, execution: str) -> None:
        async def ended() -> bool:
            return (await client.execution(execution)).status in ("completed", "failed", "cancelled")

        await eventually(ended, within_s=30)
        state = await client.execution(execution)
        story = [event.type for event in await client.history(execution)]
        seen[name] = state.status, state.output, state.error and state.error.code, sorted(story)

    for name, spec in MACHINES.items():
        await client.push_workflow(HEAD.replace("NAME", name) + spec.lstrip("\n"))
    for name, given in (
        ("line", {"n": 1}),
        ("crowd", {"items": [1, 2, 3, 4, 5]}),
        ("stubborn", {"until": 3}),
        ("stubborn", {"until": 9}),
        ("tree", {"n": 1}),
        ("family", {"n": 5}),
    ):
        await noted(f"{name} {given}", (await client.execute(name, given)).execution_id)

    signalled = (await client.execute("asking", {})).execution_id
    await client.pause(signalled)
    await client.resume(signalled)
    await client.signal(signalled, "go", {"n": 41})
    await noted("signalled", signalled)
    cancelled = (await client.execute("asking", {})).execution_id
    await client.cancel(cancelled)
    await noted("cancelled", cancelled)

    keyed = [(await client.execute("line", {"n": 1}, key="same")).execution_id for _ in range(2)]
    seen["keyed"] = len(set(keyed))
    for what, ask in (
        ("unknown workflow", lambda: client.execute("nowhere", {})),
        ("unknown execution", lambda: client.execution("exec_nowhere")),
        ("key for another request", lambda: client.execute("line", {"n": 2}, key="same")),
        ("wrong definition", lambda: client.push_workflow("nonsense: [")),
    ):
        try:
            await ask()
        except AgentFlowError as error:
            seen[what] = type(error).__mro__[1].__name__, error.code
    listed = await client.executions(status="failed")
    seen["failed ones"] = [(item.workflow.name, item.status) for item in listed.items]
    page = await client.executions(workflow="line", limit=1)
    seen["pages"] = len(page.items), page.next_cursor is not None, page.total_count
    seen["agents"] = sorted([agent.name async for agent in client.iter_agents()])
    seen["tool"] = (await client.test_tool("json.transform", {"value": {"a": 1}, "template": {"b": "$.a"}})).output
    return seen


@asynccontextmanager
async def by_itself(folder, dsn: str) -> AsyncIterator[Client]:
    """A server and a worker of their own, beside a PostgreSQL and a NATS of their own."""
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(nats_server(folder / "nats"))
        environment = {
            **inherited_environment(),
            "AF_DB_DSN": dsn,
            "AF_NATS_URL": bus.url,
            "AF_HOME": str(folder / "home"),
            "AF_AGENTS_FILE": str(folder / "agents.yaml"),
            "AF_HTTP_LISTEN": "127.0.0.1:0",
            "AF_GRPC_LISTEN": "127.0.0.1:0",
            "AF_BOOTSTRAP_FILE": str(folder / "admin.key"),
            "AF_LOG_FORMAT": "json",
        }
        url = ""
        for module, ready in (
            ("control_plane", r'control_plane\.ready.*|.*"http":\s*"(?P<url>[^"]+)".*control_plane\.ready'),
            ("worker", r"worker\.ready"),
        ):
            process = await ChildProcess.start(
                module, [sys.executable, "-m", module], log=folder / f"{module}.log", env=environment,
                ready=re.compile(ready), ready_within_s=60,
            )  # fmt: skip
            stack.push_async_callback(process.stop)
            found = re.search(r'"http":\s*"([^"]+)"', (folder / f"{module}.log").read_text())
            url = found[1] if found else url
        key = (folder / "admin.key").read_text().strip()
        yield await stack.enter_async_context(Client(url, api_key=key))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "arithmetic.py").write_text(MODULE)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    return tmp_path


async def test_every_scenario_ends_the_same_on_both_kinds_of_deployment(folder, postgres_dsn):
    (folder / "own").mkdir()
    for name in ("arithmetic.py", "agents.yaml"):
        (folder / "own" / name).write_text((folder / name).read_text())
    async with (
        embedded_platform(folder / "embedded", agents_file=folder / "agents.yaml") as platform,
        Client(platform.api_url, api_key=platform.api_key) as embedded,
        by_itself(folder / "own", postgres_dsn) as single_node,
    ):
        assert ((await embedded.status()).store.engine, (await embedded.status()).mode) == ("sqlite", "dev")
        assert ((await single_node.status()).store.engine, (await single_node.status()).mode) == ("postgresql", "prod")

        one, other = await asyncio.gather(scenarios(embedded), scenarios(single_node))

    assert one == other
    assert one["line {'n': 1}"][:2] == ("completed", {"n": 3})
    assert {outcome[0] for outcome in one.values() if isinstance(outcome, tuple) and len(outcome) == 4} == {
        "completed",
        "failed",
        "cancelled",
    }
