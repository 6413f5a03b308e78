"""The OpenAPI document against the server: whatever is sent, every answer is one that the document promises."""

import asyncio
import contextlib
import itertools
import json

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import validator_for
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentflow.testing import eventually
from control_plane.api.app import routes
from control_plane.api.guard import changes, permissions_of

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ENDLESS = "/api/v1/stream"  # tests/e2e/test_live.py reads it
NOUNS = ("workflows", "executions", "tools", "agents", "tasks")
EXAMPLES = 12

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: contract, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""


STOPS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: stops, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: ask
    states:
      ask: {human: {title: Go on?}, timeout: 1h, on_success: stop}
      stop: {fail: {code: stopped, message: That was all.}}
"""

TREE = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: contract-tree, version: 1.0.0}
spec:
  planner: behavior_tree
  tree:
    sequence:
      - wait: {for: 1h}
"""

TOOL = """
apiVersion: agentflow/v1
kind: Tool
metadata: {name: contract.echo, version: 1.0.0}
spec:
  run: {type: http, url: "https://contract.example.com/echo"}
  permissions: ["network.http:contract.example.com"]
  input: {type: object}
"""


@pytest.fixture
def http(platform):
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    with httpx.Client(base_url=platform.api_url, trust_env=False, timeout=30, headers=headers) as client:
        yield client


@pytest.fixture
def document(http):
    return http.get("/api/v1/openapi.json").raise_for_status().json()


@pytest.fixture
def known(http):
    """Names that exist, so that not every made-up request ends at a 404."""
    pushed = http.post("/api/v1/workflows", content=WORKFLOW, headers={"Content-Type": "application/yaml"})
    assert pushed.status_code in (200, 201)
    execution = http.post("/api/v1/workflows/contract/execute", json={}).json()["execution_id"]
    snapshot = http.post(f"/api/v1/executions/{execution}/snapshots").json()["id"]
    return {
        "reference": "contract",
        "name": "contract",
        "plan": "current",
        "execution": execution,
        "snapshot": snapshot,
    }


def operations(document):
    return [
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if path != ENDLESS and method in ("get", "post", "put", "patch", "delete")
    ]


def test_every_made_up_request_is_answered_as_the_document_says(document, http, known, platform):
    schema = schemathesis.openapi.from_dict(document)
    turn = itertools.count()
    for method, path in operations(document):
        operation = schema[path][method.upper()]

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def hold(case):
            if next(turn) % 2 and case.path_parameters:  # every other request is about something that exists
                case.path_parameters.update({key: known[key] for key in case.path_parameters if key in known})
            if isinstance(case.query, dict) and "wait_s" in case.query:
                case.query["wait_s"] = 0
            if isinstance(case.body, dict) and case.body.get("wait"):
                case.body["wait_s"] = 0.01
            response = case.call(base_url=platform.api_url, headers=http.headers)
            case.validate_response(response, checks=CHECKS)
            if case.path == "/api/v1/budgets" and response.status_code == 201:  # it would stop whatever comes next
                assert http.delete(f"{case.path}/{response.json()['id']}").status_code == 204

        hold()


def test_every_operation_documents_its_errors_and_has_an_id_of_its_own(document):
    ids = []
    for method, path in operations(document):
        operation = document["paths"][path][method]
        ids.append(operation["operationId"])
        assert operation.get("tags"), (method, path)
        if path.startswith("/api/v1"):
            assert {"400", "406", "503"} <= set(operation["responses"]), (method, path)
        for status, answer in operation["responses"].items():
            if status.startswith(("4", "5")) and path.startswith("/api/v1"):
                assert "application/problem+json" in answer["content"], (method, path, status)
    assert len(ids) == len(set(ids))


def test_every_body_has_an_example_that_is_as_its_schema_says(document):
    seen = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            good = {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}
            for whose, body in {"request": operation.get("requestBody", {}), **good}.items():
                for kind, shown in body.get("content", {}).items():
                    assert "example" in shown, (method, path, whose, kind)
                    shape = {**shown.get("schema", {}), "components": document["components"]}
                    wrong = [str(error) for error in validator_for(shape).iter_errors(shown["example"])]
                    assert not wrong, (method, path, whose, wrong)
                    seen += 1
    assert seen > 100


@pytest.mark.parametrize("path", ["/api/v1/workflows", "/api/v1/tools"])
def test_the_examples_of_definitions_can_be_registered(document, http, path):
    for kind, shown in document["paths"][path]["post"]["requestBody"]["content"].items():
        content = shown["example"] if isinstance(shown["example"], str) else json.dumps(shown["example"])
        answer = http.post(path, content=content, headers={"Content-Type": kind})
        assert answer.status_code in (200, 201), answer.text


GROWS_BY_ITSELF = {"events", "steps", "ticks", "evaluations"}  # of one execution: read `after` a number, not by cursor
SAME_AGAIN = {"workflows", "tools", "schedules"}  # what was sent before changes nothing, with a key or without


def test_every_list_is_paged_and_sorted_by_the_server(document):
    lists = []
    for path, methods in document["paths"].items():
        shape = _answer_shape(document, methods.get("get", {}))
        if "items" not in shape.get("properties", {}) or path.rpartition("/")[2] in GROWS_BY_ITSELF:
            continue
        if path == "/api/v1/traces/{trace}" or path == "/api/v1/costs":
            continue  # one answer, bounded, whose parts are the spans or the sums in it
        lists.append(path)
        asked = {parameter["name"] for parameter in methods["get"].get("parameters", ())}
        assert {"filter", "sort", "limit", "cursor"} <= asked, path
        assert {"next_cursor", "total_count"} <= set(shape["properties"]), path
        assert "422" in methods["get"]["responses"], path
    assert len(lists) > 12


def _answer_shape(document, operation):
    content = operation.get("responses", {}).get("200", {}).get("content", {})
    named = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    return document["components"]["schemas"].get(named.rpartition("/")[2], {})


def test_every_post_that_creates_something_takes_an_idempotency_key(document):
    creating = 0
    for path, methods in document["paths"].items():
        operation = methods.get("post", {})
        if not {"201", "202"} & set(operation.get("responses", ())) or path.rpartition("/")[2] in SAME_AGAIN:
            continue
        creating += 1
        headers = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
        assert "Idempotency-Key" in headers, path
    assert creating > 8


def test_every_body_refuses_what_it_does_not_know(document):
    """So nobody can set an owner, a cost or a state by naming it, and a misspelt field is told."""
    bodies = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if schema is None or path in ("/api/v1/workflows", "/api/v1/tools"):
                continue  # a definition: checked key by key, with line and column
            for shape in _alternatives(document, schema):
                bodies += 1
                assert shape.get("additionalProperties") is False, (method, path, shape.get("title"))
    assert bodies > 15


def _alternatives(document, schema):
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    several = schema.get("oneOf") or schema.get("anyOf")
    if several:
        return [shape for one in several if one.get("type") != "null" for shape in _alternatives(document, one)]
    return [schema]


def _fail_and_answer(http, call):
    """An execution that asks a person, then fails, is retried, and terminated."""
    http.post("/api/v1/workflows", content=STOPS, headers={"Content-Type": "application/yaml"})
    started = call("POST", "/api/v1/workflows/{reference}/execute", {}, names={"reference": "stops"}).json()
    names = {"execution": started["execution_id"], "path": "ask"}
    asked = call("GET", "/api/v1/executions/{execution}", names=names).json()
    names["path"] = asked["tasks"][0]["path"]
    call("POST", "/api/v1/executions/{execution}/tasks/{path}/answer", {"answer": {}}, names=names)
    failed_at = call("GET", "/api/v1/executions/{execution}", names=names).json()["failed_at"]
    call("POST", "/api/v1/executions/{execution}/fork", {"from": failed_at}, names=names)
    call("POST", "/api/v1/executions/{execution}/retry", names=names)
    held = call("POST", "/api/v1/workflows/{reference}/execute", {}).json()
    call("POST", "/api/v1/executions/{execution}/terminate", names={"execution": held["execution_id"]})


def _log_in_and_out(http, call):
    for path in ("/api/v1/auth/whoami", "/.well-known/jwks.json"):
        call("GET", path)
    key = http.headers["Authorization"].removeprefix("Bearer ")
    token = call("POST", "/api/v1/auth/token", {"grant_type": "api_key", "api_key": key}).json()["access_token"]
    call("POST", "/api/v1/auth/logout", headers={"Authorization": f"Bearer {token}"})


def _manage_people(call):
    account = call("POST", "/api/v1/service-accounts", {"name": "contract", "roles": ["viewer"]}).json()["id"]
    made = call("POST", "/api/v1/users", {"email": "contract@example.com", "roles": ["developer"]}).json()["id"]
    call("PATCH", "/api/v1/users/{user}", {"disabled": True}, names={"user": made})
    call("GET", "/api/v1/users/{user}", names={"user": account})
    call("POST", "/api/v1/roles", {"name": "contract", "permissions": ["tools.read"], "allowed_tools": ["kb.*"]})
    call("PUT", "/api/v1/roles/{role}", {"permissions": []}, names={"role": "contract"})
    call("GET", "/api/v1/roles/{role}", names={"role": "admin"})
    call("DELETE", "/api/v1/roles/{role}", names={"role": "contract"})
    key = call("POST", "/api/v1/api-keys", {"name": "contract", "user": account, "expires_in_s": 60}).json()["id"]
    call("DELETE", "/api/v1/api-keys/{key}", names={"key": key})
    call("POST", "/api/v1/tenants", {"id": "contract", "quotas": {"workflows": 1}})
    for part in ("", "/usage"):
        call("GET", f"/api/v1/tenants/{{tenant}}{part}", names={"tenant": "contract"})
    call("PATCH", "/api/v1/tenants/{tenant}", {"quotas": {}}, names={"tenant": "contract"})
    for path in ("users", "service-accounts", "roles", "api-keys", "tenants"):
        call("GET", f"/api/v1/{path}")


def _look_back(http, call):
    """At a behaviour tree: what its ticks changed, what was evaluated, and where it is to stop."""
    http.post("/api/v1/workflows", content=TREE, headers={"Content-Type": "application/yaml"})
    started = call("POST", "/api/v1/workflows/{reference}/execute", {}, names={"reference": "contract-tree"}).json()
    names = {"execution": started["execution_id"]}
    call("POST", "/api/v1/executions/{execution}/breakpoints", {"at": []}, names=names)
    call("GET", "/api/v1/executions/{execution}/evaluations", names=names)
    ticks = call("GET", "/api/v1/executions/{execution}/ticks", names=names).json()["items"]
    names["version"] = str(ticks[0]["version"])
    call("GET", "/api/v1/executions/{execution}/ticks/{version}", names=names)


def _move(call):
    held = call("POST", "/api/v1/workflows/{reference}/execute", {}).json()["execution_id"]
    for part in ("/check", ""):
        call("POST", f"/api/v1/executions/{{execution}}/move{part}", {"to": "1.0.0"}, names={"execution": held})


def _pause_everywhere(call):
    call("POST", "/api/v1/platform/pause", {"reason": "maintenance"})
    call("POST", "/api/v1/platform/resume")


def _trace(call, execution):
    trace = call("GET", "/api/v1/executions/{execution}", names={"execution": execution}).json()["trace_id"]
    call("GET", "/api/v1/traces/{trace}", names={"trace": trace})
    call("GET", "/api/v1/executions/{execution}/state", params={"version": 1})


def _snapshots(call):
    """Of an execution with a large input, so that there is a value beside it."""
    large = call("POST", "/api/v1/workflows/{reference}/execute", {"input": {"text": "x" * 300_000}})
    held = {"execution": large.json()["execution_id"]}
    taken = call("POST", "/api/v1/executions/{execution}/snapshots", {}, names=held).json()
    names = {"snapshot": taken["id"]}
    call("GET", "/api/v1/snapshots")
    call("GET", "/api/v1/snapshots/{snapshot}", names=names)
    content = call("GET", "/api/v1/snapshots/{snapshot}/content", names=names).text
    (value,) = json.loads(content.splitlines()[-1])["end"]["values"]
    call("GET", "/api/v1/snapshots/{snapshot}/values/{sha256}", names={**names, "sha256": value["sha256"]})
    call("DELETE", "/api/v1/snapshots/{snapshot}", names=names)


def _replay(call, execution):
    """One execution at once, and many as a job; a version tried on them before it is registered."""
    call("POST", "/api/v1/deployments", {"definition": WORKFLOW, "last": 1})
    call("GET", "/api/v1/workflows/{reference}/deployments")
    call("POST", "/api/v1/workflows/{reference}/replay", {"executions": [execution]})
    job = call("POST", "/api/v1/workflows/{reference}/replay", {"last": 2}).json()["job_id"]
    call("GET", "/api/v1/jobs/{job}", names={"job": job})


def test_every_operation_succeeds_at_least_once(document, http, known):
    done = set()

    def call(method, template, body=None, *, names=None, **options):
        path = template.format(**{**known, **(names or {})})
        answer = http.request(method, path, json=body, **options)
        assert answer.status_code < 300, (method, path, answer.text)
        done.add((method.lower(), template))
        return answer

    executions = "/api/v1/executions/{execution}"
    _log_in_and_out(http, call)
    _manage_people(call)
    for path in ("/healthz", "/readyz", *(f"/api/v1/{noun}" for noun in NOUNS)):
        call("GET", path)
    yaml = {"Content-Type": "application/yaml"}
    call("POST", "/api/v1/workflows", content=WORKFLOW, headers=yaml)
    call("GET", "/api/v1/workflows/{reference}")
    call("GET", "/api/v1/workflows/{name}/versions")
    call("GET", "/api/v1/workflows/{reference}/plans/{plan}")
    call("POST", "/api/v1/workflows/{reference}/execute", {"input": {}})
    for order in ("pause", "resume"):
        call("POST", f"{executions}/{order}")
    call("POST", f"{executions}/vars", {"vars": {"a": 1}})
    for part in ("", "/events", "/steps"):
        call("GET", f"{executions}{part}")
    call("POST", f"{executions}/signal", {"name": "other"})
    call("POST", f"{executions}/cancel", {"reason": "done"})
    _fail_and_answer(http, call)
    tool = call("POST", "/api/v1/tools", content=TOOL, headers=yaml).json()["id"]
    call("GET", "/api/v1/tools/{reference}", names={"reference": tool})
    call("POST", "/api/v1/tools/{reference}/test", {"input": {}}, names={"reference": "json.transform"})
    call("GET", "/api/v1/agents/{name}", names={"name": "classifier"})
    call("GET", "/api/v1/status")
    schedules = "/api/v1/schedules"
    call("POST", schedules, {"name": "contract", "workflow": "contract", "every": "1h"})
    call("GET", schedules)
    for method, part in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/trigger"), ("DELETE", "")):
        call(method, f"{schedules}/{{name}}{part}")
    _look_back(http, call)
    _replay(call, known["execution"])
    _snapshots(call)
    call("GET", "/api/v1/costs")
    call("GET", "/api/v1/plans/{plan}/estimate", names={"plan": "contract"})
    budgets = "/api/v1/budgets"
    made = call("POST", budgets, {"scope": "workflow", "name": "nobody's", "dollars": "1.00"}).json()
    call("GET", budgets)
    call("GET", f"{budgets}/{{budget}}", names={"budget": made["id"]})
    call("PATCH", f"{budgets}/{{budget}}", {"dollars": "2.00"}, names={"budget": made["id"]})
    call("DELETE", f"{budgets}/{{budget}}", names={"budget": made["id"]})
    for part in ("", "/checkpoint"):
        call("GET", f"/api/v1/audit{part}")
    _move(call)
    _trace(call, known["execution"])
    _pause_everywhere(call)
    left = {operation for operation in operations(document) if operation not in done}
    assert left == set(), "operations that no test has seen succeed"
    asyncio.run(_all_are_recorded(document, http))


async def _all_are_recorded(document, http):
    with contextlib.suppress(AssertionError):
        await eventually(lambda: not _unrecorded(document, http))
    assert _unrecorded(document, http) == set(), "operations that leave no audit record of what they changed"


def _unrecorded(document, http):
    """Operations that change something, and are not in the audit trail after they have succeeded."""
    needed = {
        document["paths"][path.replace(":path}", "}")][method.lower()]["operationId"]
        for (method, path), permission in permissions_of(routes(None, "test")).items()
        if method not in ("GET", "HEAD", "WEBSOCKET") and (permission is None or changes(method, permission))
    }
    recorded = set()
    for action in needed:
        found = http.get("/api/v1/audit", params={"filter[action]": action, "limit": 1}).json()["items"]
        recorded |= {link["record"]["action"] for link in found if link["record"]["resource"]["id"]}
    return needed - recorded
