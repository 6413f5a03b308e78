"""The support template's tool as a worker hosts it: compiled, sandboxed, and still able to read its articles."""

import json
import sys
from pathlib import Path

from agentflow.clock import SystemClock
from agentflow.contracts.step import StepRequest
from worker.agents.agent import StepContext
from worker.wiring import hosted_agents


def first_ticket() -> str:
    return json.loads(Path("templates/support/tickets.json").read_bytes())[0]["input"]["ticket"]


async def test_the_templates_search_finds_its_articles_from_inside_the_sandbox(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    hosted = await hosted_agents(Path("templates/support/agents.yaml"), sandbox_backend="process", clock=SystemClock())
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
