"""Budgets on the running platform, on both engines: what is used up stops what it covers, and nothing is lost by it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import NotFound, OverBudget, Unavailable
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client
from agentflow.testing import eventually
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from tests.e2e.test_af import af

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  writer: {type: function, call: "spending:write"}
  helper: {type: function, call: "spending:help_out"}
  free: {type: function, call: "spending:nothing"}
"""
CODE = """
import asyncio
from pathlib import Path

HERE = Path(__file__).parent

async def write(input, context):
    with (HERE / "ran.log").open("a") as log:
        log.write(f"{context.execution_id} {context.effect_key}\\n")
    context.spent("model x", dollars="0.10", input=90, output=10)
    context.spent("model local", input=7)
    await asyncio.sleep(float((HERE / "slow").read_text()) if (HERE / "slow").exists() else 0)
    return {}

def help_out(input, context):
    context.spent("model y", dollars="0.10", input=100)
    return {}

def nothing(input, context):
    return {}
"""


def workflow(name: str, body: str) -> str:
    return f"""
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: {name}, version: 1.0.0}}
spec:
  planner: fsm
  fsm: {body}
"""


LOOPING = workflow(
    "looping",
    """
    initial_state: again
    final_states: [done]
    states:
      again: {loop: {while: 'index < 12', max: 12, do: {agent: writer}}, on_success: done}
      done: {succeed: {}}
""",
)
ONCE = workflow("once", "{initial_state: a, final_states: [a], states: {a: {agent: writer}}}")
CROWD = workflow(
    "crowd",
    "{initial_state: a, final_states: [a], states: "
    "{a: {map: {over: '${input.items}', concurrency: 1000, do: {agent: writer, timeout: 3s}}}}}",
)
MIXED = workflow(
    "mixed",
    "{initial_state: a, final_states: [b], states: {a: {agent: free, on_success: b}, b: {agent: helper}}}",
)


@pytest.fixture
async def platform(tmp_path: Path, database_dsn: str) -> AsyncIterator[EmbeddedPlatform]:
    (tmp_path / "spending.py").write_text(CODE)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    env = {"AF_DB_DSN": database_dsn, "AF_DISPATCH_WINDOW": "4"}
    async with embedded_platform(tmp_path / "home", agents_file=tmp_path / "agents.yaml", extra_env=env) as platform:
        yield platform


@pytest.fixture
async def api(platform: EmbeddedPlatform) -> AsyncIterator[Client]:
    async with Client(platform.api_url, api_key=platform.api_key) as api:
        for text in (LOOPING, ONCE, CROWD, MIXED):
            await api.push_workflow(text)
        yield api


def runs(folder: Path) -> list[str]:
    log = folder / "ran.log"
    return log.read_text().splitlines() if log.exists() else []


async def stands_still(api: Client, execution: str) -> bool:
    return (await api.execution(execution)).status == "paused"


async def ended(api: Client, execution: str, status: str = "completed") -> None:
    async def is_so() -> bool:
        return (await api.execution(execution)).status == status

    await eventually(is_so, within_s=15)


async def test_a_loop_stops_where_the_budget_ends_and_goes_on_after_a_top_up(api, tmp_path):
    budget = await api.budgets.create("workflow", "looping", period="day", dollars="0.50")
    started = await api.execute("looping", {})

    async def stopped():
        return await stands_still(api, started.execution_id)

    await eventually(stopped, within_s=15)
    assert len(runs(tmp_path)) == 5  # one step at a time was under way: exactly what the budget has
    held = await api.execution(started.execution_id)
    assert held.held_by == budget.id
    found = await api.budgets.get(budget.id)
    assert (found.spent.dollars, found.spent.tokens, found.state) == ("0.500000", 535, "exhausted")
    assert (found.remaining.dollars, found.cost_unknown) == ("0.000000", 5)

    with pytest.raises(OverBudget, match=r"0\.500000 of 0\.500000 dollars") as refused:
        await api.execute("looping", {})
    assert refused.value.code == "AF1807"
    assert budget.id in refused.value.hint
    with pytest.raises(OverBudget):
        await api.resume(started.execution_id)
    assert (await api.execute("once", {}, wait=True)).status == "completed", "another workflow is not covered"

    await api.budgets.update(budget.id, dollars="10.00")
    await ended(api, started.execution_id)
    assert len(runs(tmp_path)) == 13
    assert (await api.budgets.get(budget.id)).spent.dollars == "1.200000"
    replay = await api.records.replay(started.execution_id)
    assert replay.identical, replay.divergence


async def test_a_crowd_stops_at_what_was_sent_and_no_step_times_out_while_it_waits(api, tmp_path):
    (tmp_path / "slow").write_text("0.2")
    budget = await api.budgets.create(dollars="0.50", period="total")
    crowd = await api.execute("crowd", {"items": list(range(30))})

    async def stopped():
        return await stands_still(api, crowd.execution_id)

    await eventually(stopped, within_s=15)
    assert 5 <= len(runs(tmp_path)) <= 5 + 4, "a window of four steps may have been with the worker"
    spent = (await api.budgets.get(budget.id)).spent.dollars
    assert float(spent) <= 0.90

    await api.budgets.delete(budget.id)
    await ended(api, crowd.execution_id)
    assert len(runs(tmp_path)) == 30
    assert len(set(runs(tmp_path))) == 30, "each step ran once"


async def test_of_a_hundred_starts_at_a_used_up_budget_none_begins(api, tmp_path):
    await api.budgets.create(dollars="0")
    before = (await api.executions(limit=1)).total_count

    told = await asyncio.gather(
        *(api.execute("once", {}, key=f"start-{n}") for n in range(100)), return_exceptions=True
    )

    assert [type(one).__mro__[1] for one in told] == [OverBudget] * 100
    assert {one.code for one in told} == {"AF1807"}
    assert (await api.executions(limit=1)).total_count == before
    assert runs(tmp_path) == []


async def test_an_agents_budget_holds_back_its_steps_and_nobody_elses(api):
    budget = await api.budgets.create("agent", "helper", tokens=0)
    mixed = await api.execute("mixed", {})

    async def stopped():
        return await stands_still(api, mixed.execution_id)

    await eventually(stopped)
    assert (await api.execution(mixed.execution_id)).held_by == budget.id
    assert (await api.execute("once", {}, wait=True)).status == "completed"
    await api.budgets.delete(budget.id)
    await ended(api, mixed.execution_id)


async def test_a_person_may_pause_cancel_or_end_what_waits_for_a_budget(api):
    budget = await api.budgets.create(dollars="0.10")
    held = [(await api.execute("looping", {})).execution_id]

    async def stopped():
        return await stands_still(api, held[0])

    await eventually(stopped)
    paused = await api.pause(held[0], reason="wait for the new month")
    assert (paused.status, paused.held_by) == ("paused", None)

    other = await api.budgets.update(budget.id, dollars="5.00")
    started = (await api.execute("looping", {})).execution_id
    await ended(api, started)
    assert (await api.execution(held[0])).status == "paused", "a person's word counts for more"
    assert other.state == "ok"
    await api.cancel(held[0])
    await ended(api, held[0], "cancelled")


async def test_a_warning_is_told_once_and_stops_nothing(api, platform, tmp_path):
    budget = await api.budgets.create("workflow", "looping", dollars="1.00", on_exceed="warn", warn_at=0.5)
    first = await api.execute("looping", {}, wait=True)
    assert first.status == "completed"
    assert (await api.budgets.get(budget.id)).state == "exhausted"

    async def told():
        listed = await api.audit.list({"resource": budget.id})
        return [link.record["action"] for link in listed.items if link.record["action"] != "budgets.create"]

    async def exhausted():
        return "budgets.exhausted" in await told()

    await eventually(exhausted)
    await api.execute("looping", {}, wait=True)
    await eventually(exhausted)
    actions = await told()
    assert sorted(actions) in (["budgets.exhausted"], ["budgets.exhausted", "budgets.warned"])

    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}
    shown = af("budgets", "list", cwd=tmp_path, **env)
    assert "exhausted" in shown.stdout, shown.stderr
    assert "2.400000 of 1.000000 dollars" in shown.stdout


async def test_a_killed_control_plane_loses_no_spending_and_counts_none_twice(api, platform, tmp_path):
    (tmp_path / "slow").write_text("0.05")
    budget = await api.budgets.create(dollars="1.00")
    started = [(await api.execute("looping", {})).execution_id for _ in range(3)]
    await eventually(lambda: len(runs(tmp_path)) >= 4, within_s=15)

    platform.control_plane.kill()

    async def all_stand_still():
        try:
            found = [(await api.execution(one)) for one in started]
        except Unavailable:
            return False  # it is being started again
        return all(one.status == "paused" and one.held_by == budget.id for one in found)

    await eventually(all_stand_still, within_s=30)
    platform.control_plane.kill()
    await eventually(all_stand_still, within_s=30)
    spent = (await api.budgets.get(budget.id)).spent
    (line,) = (await api.costs(scope="tenant", period="all")).items
    assert spent.dollars == line.dollars
    assert 1.0 <= float(spent.dollars) <= 1.3, "three were under way"
    succeeded = 0
    for one in started:
        history = await api.history(one)
        succeeded += sum(event.type == "step.succeeded.v1" for event in history)
    assert spent.dollars == f"{succeeded / 10:.6f}"

    await api.budgets.update(budget.id, dollars="100")
    for one in started:
        await ended(api, one)
    (line,) = (await api.costs(scope="tenant", period="all")).items
    assert (line.dollars, (await api.budgets.get(budget.id)).spent.dollars) == ("3.600000", "3.600000")


async def test_people_make_list_change_and_delete_budgets_by_the_command_line(api, platform, tmp_path):
    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}

    def told(*words):
        said = af("budgets", *words, cwd=tmp_path, **env)
        assert said.returncode == 0, said.stderr
        return said.stdout

    made = json.loads(told("create", "--workflow", "support", "--period", "day", "--dollars", "5.00", "--json"))
    assert (made["scope"], made["name"], made["limit"]["dollars"]) == ("workflow", "support", "5.000000")
    assert made["id"] in told("list")
    assert "day of workflow support" in told("show", made["id"])
    assert "of 7.500000 dollars" in told("update", made["id"], "--dollars", "7.50")
    again = af("budgets", "create", "--workflow", "support", "--period", "day", "--tokens", "1", cwd=tmp_path, **env)
    assert "AF1806" in again.stderr
    assert again.returncode == 2
    assert json.loads(told("list", "--workflow", "support", "--json"))["total_count"] == 1
    told("delete", made["id"])
    assert "No budgets" in told("list")
    with pytest.raises(NotFound):
        await api.budgets.get(made["id"])


async def test_a_program_without_an_event_loop_has_the_same_calls(api, platform):
    def used():
        with BlockingClient(platform.api_url, api_key=platform.api_key) as client:
            made = client.create_budget("agent", "writer", tokens=10)
            changed = client.update_budget(made.id, tokens=20)
            listed = [one.id for one in client.budgets(scope="agent")]
            assert (client.budget(made.id), listed) == (changed, [made.id])
            client.delete_budget(made.id)
            return list(client.budgets())

    assert await asyncio.to_thread(used) == []


async def test_the_resource_keeps_the_conventions_and_its_tenant(api, platform):
    made = await api.identity.add_tenant("theirs")
    key = {"Idempotency-Key": "once-1", "Authorization": f"Bearer {platform.api_key}"}
    wanted = {"scope": "workflow", "name": "once", "dollars": "1.00", "on_exceed": "warn", "warn_at": 0.1}
    async with httpx.AsyncClient(base_url=f"{platform.api_url}/api/v1", trust_env=False) as http:
        first = await http.post("/budgets", json=wanted, headers=key)
        again = await http.post("/budgets", json=wanted, headers=key)
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        other = await http.post("/budgets", json={**wanted, "dollars": "2.00"}, headers=key)
        assert (other.status_code, other.json()["code"]) == (409, "AF1219")
        budget = first.headers["location"].removeprefix("/api/v1")
        http.headers["Authorization"] = f"Bearer {platform.api_key}"

        seen = (await http.get(budget)).headers["etag"]
        assert (await http.get(budget, headers={"If-None-Match": seen})).status_code == 304
        ran = await http.post("/workflows/mixed/execute", json={"input": {}, "wait": True})
        assert "agentflow-budgets" not in ran.headers, "it is not covered"
        await http.post("/workflows/once/execute", json={"input": {}, "wait": True})
        assert (await http.get(budget, headers={"If-None-Match": seen})).status_code == 200, "something was spent"
        told = await http.post("/workflows/once/execute", json={"input": {}})
        assert told.headers["agentflow-budgets"].startswith(f"{first.json()['id']}; state=warned; used=0.")
        changed = await http.patch(budget, json={"dollars": "3.00"}, headers={"If-Match": seen})
        assert changed.json()["limit"]["dollars"] == "3.000000", "that something was spent is no conflict"
        assert (await http.patch(budget, json={"tokens": 1}, headers={"If-Match": seen})).status_code == 412
        assert (await http.patch(budget, json={"tokens": 1}, headers={"If-Match": '"nonsense"'})).status_code == 412
        nothing = await http.patch(budget, json={"dollars": None})
        assert (nothing.status_code, nothing.json()["code"]) == (422, "AF1808")
        pages = await http.get(
            "/budgets", params={"filter[state]": "ok,warned", "filter[scope]": "workflow", "limit": 1}
        )
        assert (pages.json()["total_count"], pages.json()["next_cursor"]) == (1, None)

        theirs = {"Authorization": f"Bearer {made.admin.api_key}"}
        for method, body in (("GET", None), ("PATCH", {"tokens": 5}), ("PATCH", {"nope": 5}), ("DELETE", None)):
            refused = await http.request(method, budget, json=body, headers=theirs)
            assert refused.status_code == 404, (method, refused.text)
        assert (await http.get("/budgets", headers=theirs)).json()["total_count"] == 0


async def test_a_refused_start_says_so_over_grpc(api, platform):
    await api.budgets.create(tokens=0)
    (address,) = re.findall(r'"grpc": *"([^"]+)"', platform.control_plane.log.read_text())[-1:]
    async with grpc.aio.insecure_channel(address) as channel:
        workflows = pb_grpc.WorkflowServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await workflows.Execute(
                pb.ExecuteRequest(workflow="once"), metadata=(("authorization", f"Bearer {platform.api_key}"),)
            )
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(refused.value.trailing_metadata())["af-code"] == "AF1807"
