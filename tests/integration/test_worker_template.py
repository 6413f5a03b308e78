"""The support template's tool as a worker hosts it: compiled, sandboxed, and still able to read its articles."""

import json
import sys
from pathlib import Path

from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.contracts.pools import SHARED
from agentflow.contracts.step import StepRequest
from agentflow.ids import UlidSource
from agentflow.settings import Settings
from worker.agents.agent import StepContext
from worker.states.desk import StateDesk
from worker.tools.claiming import CallClaims
from worker.tools.records import ToolRecords
from worker.tools.workspaces import Workspaces
from worker.wiring import ToolFooting, hosted_agents


def first_ticket() -> str:
    return json.loads(Path("templates/support/tickets.json").read_bytes())[0]["input"]["ticket"]


async def test_the_templates_search_finds_its_articles_from_inside_the_sandbox(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    clock = SystemClock()
    records = ToolRecords(ids=UlidSource(clock.now_ms), clock=clock, worker="wrk_1", pool=SHARED)
    claims = CallClaims(worker="wrk_1", pool="default", new_id=lambda: "1", clock=clock)
    desk = StateDesk(clock=clock, worker="wrk_1", pool="default")
    store = await open_artifacts(f"file://{tmp_path / 'artifacts'}")
    workspaces = Workspaces(tmp_path / "workspaces", ledger=desk, store=store, clock=clock)
    footing = ToolFooting(Settings(home=tmp_path), records, workspaces, claims, clock)
    hosted = await hosted_agents(Path("templates/support/agents.yaml"), footing, clock=clock, desk=desk)
    request = StepRequest(
        "exec_1",
        "support",
        0,
        "search",
        "search",
        1,
        {"query": first_ticket()},
        10_000,
        "default/exec_1/search",
        "kb.search",
    )

    output = await hosted["tools"].agent.run(request, StepContext("exec_1", "search", 1, "key", 0))

    assert sorted(hosted) == ["apologist", "classifier", "escalations", "responder", "tools"]
    assert output["articles"][0]["title"] == "Reset a forgotten password"
