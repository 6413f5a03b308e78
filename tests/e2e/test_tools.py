"""Tools on the whole platform: pushed, pinned, called by executions, and every call on record exactly once."""

import json
from collections import Counter

import httpx
import msgspec
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.contracts.tool_records import ToolCallRecord
from tests.e2e.test_af import af

TOOL = """\
apiVersion: agentflow/v1
kind: Tool
metadata: {name: team.echo, version: VERSION, description: Gives back what it gets.}
spec:
  run: {type: command, argv: [/bin/cat]}
  input: {type: object, required: [text], properties: {text: {type: string}}}
  output: {type: object, required: [text]}
"""
WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: tools-at-work, version: 1.0.0}
spec:
  planner: fsm
  input: {type: object, properties: {text: {type: string}}}
  fsm:
    initial_state: echo
    final_states: [shape]
    states:
      echo: {tool: team.echo@1, input: {text: "${input.text}"}, on_success: keep}
      keep: {tool: fs.write, input: {path: notes/echo.txt, content: "${steps.echo.output.text}"}, on_success: look}
      look: {tool: fs.read, input: {path: notes/echo.txt}, on_success: shape}
      shape: {tool: json.transform, input: {value: "${steps.look.output}", template: {said: "$.content"}}}
"""


@pytest.fixture
async def http(platform):
    async with httpx.AsyncClient(
        base_url=platform.api_url,
        trust_env=False,
        timeout=60,
        headers={"Authorization": f"Bearer {platform.api_key}"},
    ) as client:
        yield client


async def push(http, noun: str, text: str) -> httpx.Response:
    return await http.post(f"/api/v1/{noun}", content=text, headers={"Content-Type": "application/yaml"})


async def records(platform) -> list[ToolCallRecord]:
    async with jetstream(platform.nats_url, name="test", replicas=1) as bus:
        payloads = [message.read(dict) async for message in bus.replay(subjects.AUDIT)]
    return [msgspec.convert(each, ToolCallRecord) for each in payloads if each.get("kind") == "tool_call.v1"]


async def test_an_execution_calls_its_pinned_tools_and_each_call_has_exactly_one_record(http, platform):
    pushed = (await push(http, "tools", TOOL.replace("VERSION", "1.0.0"))).json()
    workflow = (await push(http, "workflows", WORKFLOW)).json()
    assert "warnings" not in workflow

    started = await http.post(
        f"/api/v1/workflows/{workflow['id']}/execute", json={"input": {"text": "hello"}, "wait": True}
    )
    result = started.json()
    assert (result["status"], result["output"]) == ("completed", {"value": {"said": "hello"}}), result

    events = (await http.get(f"/api/v1/executions/{result['execution_id']}/events")).json()["items"]
    assert events[0]["data"]["workflow"]["tools"] == {"team.echo@1": pushed["digest"]}
    scheduled = Counter(event["data"]["path"] for event in events if event["type"].startswith("step.scheduled"))
    mine = [record for record in await records(platform) if record.site.execution_id == result["execution_id"]]
    # Each record is published to `tools.calls` and to `tools.audit`, under one call id.
    assert Counter(record.site.step for record in mine) == Counter(
        {path: 2 * count for path, count in scheduled.items()}
    )
    assert len({record.call_id for record in mine}) == len(scheduled) == 4
    assert all(len(record.profile_hash) == 64 for record in mine)
    assert {record.tool_digest for record in mine if record.site.tool == "team.echo"} == {pushed["digest"]}


async def test_a_tool_is_pushed_listed_shown_and_tried_out_with_af(platform, tmp_path):
    file = tmp_path / "echo.yaml"
    file.write_text(TOOL.replace("VERSION", "1.0.0").replace("team.echo", "team.tried"))
    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}

    first = af("tool", "push", file, cwd=tmp_path, **env)
    assert first.stdout.startswith("registered team.tried 1.0.0"), first.stderr
    assert af("tool", "push", file, cwd=tmp_path, **env).stdout.startswith("unchanged")
    listed = json.loads(af("tool", "list", "--json", cwd=tmp_path, **env).stdout)
    assert {"team.tried", "http.request", "kb.search"} <= {item["name"] for item in listed["items"]}
    assert "Gives back" in af("tool", "show", "team.tried", cwd=tmp_path, **env).stdout

    tried = af("tool", "test", "team.tried", "--input", '{"text": "hi"}', "--json", cwd=tmp_path, **env)
    assert json.loads(tried.stdout)["output"] == {"text": "hi"}, tried.stderr
    wrong = af("tool", "test", "team.tried", "--input", "{}", cwd=tmp_path, **env)
    assert wrong.returncode == 2
    assert "AF1436" in wrong.stderr
    assert "tool_input_invalid" in wrong.stderr

    file.write_text(
        file.read_text().replace("1.0.0", "1.0.1").replace("required: [text], properties", "required: [x], properties")
    )
    broken = af("tool", "push", file, cwd=tmp_path, **env)
    assert broken.returncode == 2
    assert "AF1433" in broken.stderr
    assert "input.x" in broken.stderr


async def test_a_registered_tool_may_not_read_the_workers_files(http, platform):
    greedy = TOOL.replace("VERSION", "1.0.0").replace("team.echo", "team.greedy") + '  permissions: ["fs.read:/etc"]\n'
    assert (await push(http, "tools", greedy)).status_code == 201

    answer = (await http.post("/api/v1/tools/team.greedy/test", json={"input": {"text": "x"}})).json()

    assert answer["fault"]["code"] == "AF1410"


async def test_a_missing_tool_is_a_clear_answer(http):
    answer = await http.get("/api/v1/tools/no.such")

    assert (answer.status_code, answer.json()["code"]) == (404, "AF1431")


async def test_an_unregistered_tool_is_told_as_a_warning(http):
    text = WORKFLOW.replace("tools-at-work", "warned").replace("team.echo@1", "mine.unknown")
    answer = (await push(http, "workflows", text)).json()

    assert "a worker must host it" in answer["warnings"][0]["message"]


async def test_a_denial_leads_to_a_change_that_can_be_reviewed_and_pushed(platform, tmp_path):
    env = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}
    file = tmp_path / "fetch.yaml"
    file.write_text(TOOL.replace("VERSION", "1.4.2").replace("team.echo", "team.fetch"))
    af("tool", "push", file, cwd=tmp_path, **env)

    written = af("tool", "allow", "team.fetch", "network.http:pypi.org", cwd=tmp_path, **env)

    assert "team.fetch 1.4.2 → 1.5.0\n+ network.http:pypi.org" in written.stdout, written.stderr
    listed = json.loads(af("tool", "show", "team.fetch", "--json", cwd=tmp_path, **env).stdout)
    assert listed["permissions"] == [], "nothing changes before it is pushed"
    again = af("tool", "allow", "team.fetch", "pypi.org", cwd=tmp_path, **env)
    assert "AF1441" in again.stderr
    assert af("tool", "push", tmp_path / "team.fetch-1.5.0.yaml", cwd=tmp_path, **env).returncode == 0
    listed = json.loads(af("tool", "show", "team.fetch", "--json", cwd=tmp_path, **env).stdout)
    assert (listed["version"], listed["permissions"]) == ("1.5.0", ["network.http:pypi.org"])
    assert "already" in af("tool", "allow", "team.fetch", "pypi.org", cwd=tmp_path, **env).stdout
    builtin = af("tool", "allow", "http.request", "pypi.org", cwd=tmp_path, **env)
    assert "AF1440" in builtin.stderr
    assert "`network.http:pypi.org`" in builtin.stderr
