from pathlib import Path

import pytest

from worker.agents_file import (
    AgentsFileUnreadable,
    FunctionAgentSpec,
    HttpAgentSpec,
    InvalidAgentsFile,
    ToolSpec,
    parse_agents,
    read_agents_file,
)

HEAD = "apiVersion: agentflow/v1\nkind: Agents\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(InvalidAgentsFile) as caught:
        parse_agents(text, Path("agents.yaml"))
    assert "agents.yaml" in caught.value.message
    return [str(problem) for problem in caught.value.problems]


def test_a_file_names_its_agents_and_tools():
    file = parse_agents(
        HEAD
        + """
agents:
  classifier: {type: function, call: "support_agents:classify", concurrency: 8}
  crm: {type: http, url: "http://127.0.0.1:9000/hook", timeout: 10s, headers: {X-Team: support}}
tools:
  kb.search: {type: function, call: "support_tools:search", timeout: 1m30s, memory_mb: 512, permissions: ["fs.tmp"]}
""",
        Path("agents.yaml"),
    )

    assert file.agents == {
        "classifier": FunctionAgentSpec(type="function", call="support_agents:classify", concurrency=8),
        "crm": HttpAgentSpec(
            type="http", url="http://127.0.0.1:9000/hook", timeout="10s", headers={"X-Team": "support"}
        ),
    }
    assert file.tools == {
        "kb.search": ToolSpec(
            type="function",
            call="support_tools:search",
            timeout="1m30s",
            memory_mb=512,
            permissions=["fs.tmp"],
        )
    }
    assert file.tools["kb.search"].timeout == 90_000


def test_all_problems_are_told_at_once_each_at_its_place():
    found = problems_of(
        """apiVersion: agentflow/v2
kind: Agents
agents:
  classifier: {type: function, call: "support_agents.classify", concurency: 8}
  crm: {type: http, url: "ftp://x", timeout: soon}
  tools: {type: function, call: "a:b"}
  x y: {type: grpc}
  empty: {}
tools:
  kb.search: {type: function, memory_mb: 1}
extra: 1
"""
    )

    assert [line.split(" ")[0] for line in found] == [
        "1:13:", "4:38:", "4:65:", "5:26:", "5:46:", "6:3:", "7:3:", "7:15:", "8:10:", "10:14:", "10:42:", "11:1:",
    ]  # fmt: skip
    assert "Did you mean `concurrency`?" in found[2]
    assert "built in" in found[5]
    assert "`grpc` is not a type of agent" in found[7]
    assert "`call` is missing" in found[9]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "empty"),
        ("agents: [\n  a", "3:1", "never closed"),
        ("- 1", "1:1", "mapping"),
        (HEAD + "agents: 3", "3:9", "mapping"),
        (HEAD + 'agents:\n  a: {type: function, call: "m:f"}\n  a: {type: function, call: "m:g"}', "5:3", "twice"),
    ],
)
def test_a_text_that_is_no_agents_file_says_where_it_stops_being_one(text, place, words):
    (problem,) = problems_of(text)

    assert problem.startswith(place)
    assert words in problem


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AgentsFileUnreadable, match=r"missing\.yaml"):
        read_agents_file(tmp_path / "missing.yaml")
