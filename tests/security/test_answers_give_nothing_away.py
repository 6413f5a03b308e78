"""What answers hold beside what was asked for: headers that keep browsers out, and nothing of how we are made."""

import json
import re

import httpx
import pytest

from agentflow.devstack.platform import embedded_platform

TELLTALE = re.compile(
    r"Traceback|File \"|\.py\b|sqlite3?\.|sqlalchemy|asyncpg|SELECT |INSERT |/tmp/|/home/", re.IGNORECASE
)
DEEP = "[" * 100_000 + "]" * 100_000
WORKFLOW = {
    "apiVersion": "agentflow/v1",
    "kind": "Workflow",
    "metadata": {"name": "held", "version": "1.0.0"},
    "spec": {
        "planner": "fsm",
        "fsm": {
            "initial_state": "hold",
            "final_states": ["hold"],
            "states": {"hold": {"wait": {"signal": "go"}, "timeout": "1h"}},
        },
    },
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    import asyncio

    home = tmp_path_factory.mktemp("answers")
    (home / "agents.yaml").write_text(
        "apiVersion: agentflow/v1\nkind: Agents\nagents: {echo: {type: function, call: json:dumps}}\n"
    )
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        opening = embedded_platform(home / "home", agents_file=home / "agents.yaml")
        platform = runner.run(opening.__aenter__())
        headers = {"Authorization": f"Bearer {platform.api_key}"}
        try:
            with httpx.Client(base_url=platform.api_url, trust_env=False, timeout=60, headers=headers) as http:
                yield http
        finally:
            runner.run(opening.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def execution(running):
    assert running.post("/api/v1/workflows", json=WORKFLOW).status_code == 201
    return running.post("/api/v1/workflows/held/execute", json={}).json()["execution_id"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/api/v1/executions", 200),
        ("GET", "/api/v1/executions/nowhere", 404),
        ("POST", "/api/v1/workflows/nowhere/execute", 404),
        ("GET", "/api/v1/no-such-route", 404),
        ("DELETE", "/api/v1/executions", 405),
        ("GET", "/api/v1/executions?limit=none", 422),
    ],
)
def test_every_answer_is_closed_to_browsers(running, method, path, status):
    answer = running.request(method, path, headers={"Origin": "https://evil.example"})

    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "strict-transport-security" not in answer.headers  # this one came without TLS
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "server" not in answer.headers


def test_a_page_of_another_origin_is_not_let_in_by_a_preflight(running):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = running.request("OPTIONS", "/api/v1/workflows", headers=asked)

    assert answer.status_code >= 400
    assert not [name for name in answer.headers if name.startswith("access-control-")]


HOSTILE = {
    "deep": f'{{"input": {DEEP}}}',
    "deep objects": '{"input": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    "not a number": '{"input": {"n": NaN}}',
    "infinite": '{"input": {"n": 1e999}}',
    "enormous number": '{"input": {"n": ' + "9" * 10_000 + "}}",
    "lone surrogate": '{"input": {"text": "\\ud800"}}',
    "null byte": '{"input": {"text": "\\u0000"}}',
    "not UTF-8": b'{"input": {"text": "\xff"}}',
    "the same name twice": '{"input": {"a": 1, "a": 2}}',
    "owner in the body": '{"input": {}, "tenant_id": "other", "cost": 0, "state": "completed"}',
    "not an object": "[]",
    "nothing": "",
    "half": '{"input": ',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "path",
    ["/api/v1/workflows/held/execute", "/api/v1/executions/{}/signal", "/api/v1/executions/{}/vars", "/api/v1/users"],
)
def test_a_hostile_body_is_taken_or_refused_but_breaks_nothing_and_learns_nothing(running, execution, path, body):
    content = body if isinstance(body, bytes) else body.encode()
    answer = running.post(path.format(execution), content=content, headers={"Content-Type": "application/json"})

    assert answer.status_code < 500, answer.text[:500]
    if answer.status_code >= 400:
        told = answer.json()
        assert told["code"].startswith(("AF", "HTTP"))
        assert not TELLTALE.search(json.dumps(told)), told
    assert running.get(f"/api/v1/executions/{execution}").status_code == 200
