"""The examples of docs/guides/workers.md are run, not believed."""

import re
import sys
from pathlib import Path

import pytest

from agentflow.contracts.step import StepRequest
from worker.agents.agent import StepContext
from worker.agents.function import FunctionAgent
from worker.agents.hooks import AgentLife, HookedAgent, has_hooks
from worker.agents.loading import load
from worker.agents_file import FunctionAgentSpec, HttpAgentSpec, ToolSpec, parse_agents

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "workers.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return found


@pytest.fixture
def agents(tmp_path, monkeypatch):
    (tmp_path / "helpdesk.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "helpdesk", raising=False)
    return parse_agents(block("yaml"), tmp_path / "agents.yaml").agents


async def test_every_function_and_class_of_the_guide_is_found_and_answers(agents):
    life = AgentLife("clerk")
    context = StepContext("exec_1", "s", 1, "default/exec_1/s", 0, state=life.state)
    request = StepRequest("exec_1", "w", 0, "s", "s", 1, {"text": "Help me now"}, 1_000, "default/exec_1/s")
    answers = {}
    for name, spec in agents.items():
        if isinstance(spec, FunctionAgentSpec):
            found = load(name, spec.call)
            agent = (
                HookedAgent(found, life, concurrency=1)
                if has_hooks(found)
                else FunctionAgent(name, found, concurrency=1)
            )
            answers[name] = await agent.run(request, context)
            await agent.close()

    assert answers["classifier"] == {"urgent": True}
    assert answers["summarizer"] == {"summary": "Help me now", "budget_s": 30.0, "key": "default/exec_1/s"}
    assert answers["clerk"] == {"answer": "Help me now?", "turn": 1}
    assert life.state == {"turns": 1, "asleep": True}


def test_the_guide_shows_every_key_that_an_agent_may_have(agents):
    shown = block("yaml")
    keys = set(FunctionAgentSpec.model_fields) | set(HttpAgentSpec.model_fields)

    assert [key for key in sorted(keys) if f"{key}:" not in shown] == []
    assert {"retry", "rate_limit", "circuit", "bulkhead"} <= set(ToolSpec.model_fields)
