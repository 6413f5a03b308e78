"""The REST API as a caller meets it: the good path, and one clear answer for each kind of bad input."""

import json

import pytest

TICKET = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}


async def push(http, text, content_type="application/yaml"):
    return await http.post("/api/v1/workflows", content=text, headers={"Content-Type": content_type})


@pytest.fixture
async def registered(http, support):
    answer = await push(http, support)
    assert answer.status_code in (200, 201)
    return answer.json()


def problem(answer, status):
    """The body of a problem-details answer: every error must be one, with a hint and no trace of our insides."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert {"type", "title", "status", "detail", "code", "hint"} <= set(body)
    assert body["status"] == status
    assert "Traceback" not in answer.text
    return body


async def test_a_workflow_is_registered_executed_and_its_story_told(http, registered):
    executed = await http.post(f"/api/v1/workflows/{registered['id']}/execute", json={"input": TICKET, "wait": True})
    assert executed.status_code == 200
    result = executed.json()
    assert (result["status"], result["output"]["status"]) == ("completed", "answered")

    state = (await http.get(f"/api/v1/executions/{result['execution_id']}")).json()
    assert state["workflow"]["digest"] == registered["digest"]
    assert (state["input"], state["in_flight"]) == (TICKET, [])
    assert set(state["outputs"]) == {"classify", "knowledge_search", "respond"}

    events = (await http.get(f"/api/v1/executions/{result['execution_id']}/events")).json()
    assert [event["version"] for event in events["items"]] == list(range(1, state["version"] + 1))
    assert events["items"][0]["type"] == "execution.started.v1"
    assert events["items"][-1]["type"] == "execution.completed.v1"
    assert events["ended"]


async def test_without_wait_the_answer_comes_at_once_and_a_long_poll_brings_the_rest(http, registered):
    started = await http.post("/api/v1/workflows/support/execute", json={"input": TICKET})
    assert started.status_code == 202
    assert set(started.json()) == {"execution_id", "job_id", "trace_id", "status"}
    assert started.headers["location"] == f"/api/v1/executions/{started.json()['execution_id']}"

    after, ended = 0, False
    while not ended:
        page = (await http.get(f"{started.headers['location']}/events", params={"after": after, "wait_s": 20})).json()
        after = page["items"][-1]["version"] if page["items"] else after
        ended = page["ended"]
    assert (await http.get(started.headers["location"])).json()["status"] == "completed"


async def test_the_same_definition_again_is_no_new_version_and_other_content_is_a_conflict(http, support, registered):
    again = await push(http, support + "\n# a comment is no change\n")
    assert (again.status_code, again.json()["id"]) == (200, registered["id"])

    body = problem(await push(http, support.replace("timeout: 5m", "timeout: 6m")), 409)
    assert "metadata.version" in body["hint"]


async def test_json_definitions_are_read_as_well_as_yaml(http):
    states = {"only": {"agent": "classifier", "input": {"text": "${input.text}"}}}
    definition = {
        "apiVersion": "agentflow/v1",
        "kind": "Workflow",
        "metadata": {"name": "from-json", "version": "1.0.0"},
        "spec": {"planner": "fsm", "fsm": {"initial_state": "only", "final_states": ["only"], "states": states}},
    }
    answer = await push(http, json.dumps(definition), "application/json")

    assert answer.status_code == 201
    listed = (await http.get("/api/v1/workflows", params={"filter[name]": "from-json"})).json()
    assert [item["version"] for item in listed["items"]] == ["1.0.0"]
    shown = (await http.get("/api/v1/workflows/from-json@1.0.0")).json()
    assert shown["definition"]["metadata"]["name"] == "from-json"


BAD_DEFINITIONS = [
    ("does not parse", ("spec:", "spec: ["), "line"),
    ("unknown state in a transition", ("to: knowledge_search}", "to: knowlege_search}"), "knowledge_search"),
    (
        "unreachable state",
        ("      respond:\n", "      lonely: {agent: x, on_success: respond}\n      respond:\n"),
        "lonely",
    ),
    ("condition that does not compile", ("output.confidence >= 0.6", "output.confidence >="), "line"),
    ("condition that does not type-check", ("output.confidence >= 0.6", "output.category >= 6"), "line"),
    ("no path to a final state", ("final_states: [respond, escalate, fallback]", "final_states: [respond]"), "final"),
    ("unknown key", ("planner: fsm", "planner: fsm\n  plannr: x"), "planner"),
]


@pytest.mark.parametrize(
    ("change", "named"), [row[1:] for row in BAD_DEFINITIONS], ids=[row[0] for row in BAD_DEFINITIONS]
)
async def test_a_bad_definition_is_refused_with_the_place_and_what_to_do(http, support, change, named):
    broken = support.replace(*change)
    assert broken != support

    body = problem(await push(http, broken), 422)

    assert body["problems"]
    assert all(fault["line"] >= 1 and fault["column"] >= 1 for fault in body["problems"])
    assert named in str(body["problems"])


async def test_all_problems_of_a_definition_are_told_at_once(http, support):
    broken = support.replace("to: knowledge_search}", "to: nowhere}").replace("output.mood == 'calm'", "output.mood ==")

    body = problem(await push(http, broken), 422)

    assert len(body["problems"]) >= 2


async def test_input_that_breaks_the_schema_is_refused_with_every_problem(http, registered):
    answer = await http.post("/api/v1/workflows/support/execute", json={"input": {"ticket": 3, "extra": 1}})

    paths = {fault["path"] for fault in problem(answer, 422)["problems"]}
    assert {"input", "input.ticket"} <= paths


async def test_unknown_things_are_not_found_with_a_hint_where_to_look(http, registered):
    assert "support" in problem(await http.get("/api/v1/workflows/suport"), 404)["hint"]
    assert "af executions list" in problem(await http.get("/api/v1/executions/exec_nope"), 404)["hint"]
    problem(await http.post("/api/v1/workflows/nope/execute", json={}), 404)
    problem(await http.get("/api/v1/nothing-here"), 404)
    problem(await http.delete("/api/v1/workflows"), 405)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"input": {', 422),
        (b'{"inptu": {}}', 422),
        (b'{"input": {"ticket": NaN, "customer": "x"}}', 400),
        (b'{"input": {"ticket": "x", "customer": "y"}, "wait_s": 1e9}', 422),
        (b"[]", 422),
        (b'{"input": {"ticket": "x", "customer": "y", "n": 9007199254740993}}', 400),
    ],
)
async def test_a_malformed_request_is_refused_as_a_problem(http, registered, body, status):
    answer = await http.post(
        "/api/v1/workflows/support/execute", content=body, headers={"Content-Type": "application/json"}
    )

    problem(answer, status)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Content-Type": "text/plain"}, 415), ({"Content-Type": "application/json", "Idempotency-Key": "k" * 256}, 422)],
)
async def test_a_start_with_a_wrong_header_is_refused_as_a_problem(http, registered, headers, status):
    body = json.dumps({"input": TICKET})

    problem(await http.post("/api/v1/workflows/support/execute", content=body, headers=headers), status)


async def test_a_body_that_is_too_large_or_of_no_declared_type_is_not_read(http):
    problem(await push(http, b"x" * (5 * 1024 * 1024)), 413)
    problem(await push(http, b"# " + b"x" * (1024 * 1024)), 413)
    problem(await push(http, b"kind: Workflow", "text/plain"), 415)

    async def endless():
        for _ in range(80):
            yield b"x" * 65536

    answer = await http.post("/api/v1/workflows", content=endless(), headers={"Content-Type": "application/yaml"})
    problem(answer, 413)


async def test_a_request_for_another_host_is_not_answered(http):
    problem(await http.get("/api/v1/workflows", headers={"Host": "rebound.example"}), 400)


async def test_health_and_readiness_say_what_works(http):
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    ready = await http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "database": True, "bus": True})
    names = {agent["name"] for agent in (await http.get("/api/v1/agents")).json()["items"]}
    assert {"classifier", "tools"} <= names


async def test_the_openapi_document_lists_every_operation(http):
    paths = (await http.get("/api/v1/openapi.json")).json()["paths"]

    assert {
        "/api/v1/workflows",
        "/api/v1/workflows/{reference}/execute",
        "/api/v1/executions/{execution}/events",
    } <= set(paths)


async def test_the_plan_of_a_version_and_the_steps_of_an_execution_are_told(http, registered):
    plan = (await http.get("/api/v1/workflows/support/plans/current")).json()
    assert {node["id"] for node in plan["nodes"]} >= {"classify", "respond"}
    assert plan["workflow"]["id"] == registered["id"]
    assert (await http.get(f"/api/v1/workflows/support/plans/{plan['id']}")).json() == plan
    problem(await http.get("/api/v1/workflows/support/plans/other"), 404)

    executed = await http.post("/api/v1/workflows/support/execute", json={"input": TICKET, "wait": True})
    path = f"/api/v1/executions/{executed.json()['execution_id']}/steps"
    steps = (await http.get(path)).json()["items"]
    assert [(step["name"], step["status"], step["attempt"]) for step in steps] == [
        ("classify", "succeeded", 1),
        ("knowledge_search", "succeeded", 1),
        ("respond", "succeeded", 1),
    ]
    rest = (await http.get(path, params={"after": steps[0]["number"], "limit": 1})).json()["items"]
    assert rest == steps[1:2]
    problem(await http.get("/api/v1/executions/exec_nope/steps"), 404)


async def test_an_agent_in_the_list_and_its_detail_agree(http):
    listed = {agent["name"]: agent for agent in (await http.get("/api/v1/agents")).json()["items"]}
    shown = (await http.get("/api/v1/agents/classifier")).json()

    (instance,) = shown.pop("instances")
    assert shown == listed["classifier"]
    assert instance["health"] == "ok"
    assert instance["heard_s_ago"] < 10
    assert "classifier" in problem(await http.get("/api/v1/agents/clasifier"), 404)["hint"]
