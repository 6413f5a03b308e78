"""A behaviour tree on the real platform: registered over REST, decided by the control plane, run by a worker."""

import pytest

TREE = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: triage-tree, version: 1.0.0}
spec:
  planner: behavior_tree
  input: {type: object, required: [ticket], properties: {ticket: {type: string}, query: {}}}
  timeout: 1m
  tree:
    sequence:
      - parallel:
          - action: {name: classify, agent: classifier, input: {text: "${input.ticket}"}}
          - retry:
              attempts: 2
              do:
                action: {name: search, tool: kb.search, input: {query: "${input.query}"}, vars: {found: "${articles}"}}
      - condition: "size(vars.found) > 0"
      - action:
          name: respond
          agent: responder
          input: {ticket: "${input.ticket}", customer: Mara, articles: "${vars.found}"}
"""


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(TREE)


async def run(http, **given):
    answer = await http.post("/api/v1/workflows/triage-tree/execute", json={"input": given, "wait": True})
    assert answer.status_code == 200, answer.text
    ended = answer.json()
    events = (await http.get(f"/api/v1/executions/{ended['execution_id']}/events")).json()["items"]
    return ended, [event["data"] | {"type": event["type"]} for event in events]


async def test_a_tree_with_a_parallel_and_a_retry_runs_to_its_end(http):
    ended, events = await run(http, ticket="I forgot my password.", query="password reset")

    assert (ended["status"], ended["output"]["status"]) == ("completed", "answered")
    assert [it["path"] for it in events if it["type"] == "step.scheduled.v1"] == [
        "tree/0/classify",
        "tree/0/1/search",
        "tree/respond",
    ]
    moved = [it for it in events if it["type"] == "program.moved.v1"]
    assert moved[0]["memory"]["tree"] == ["r", 0]
    assert moved[-1]["memory"]["tree"] == ["s", 2]


async def test_a_step_that_keeps_failing_is_retried_by_the_tree_and_then_fails_the_execution(http):
    ended, events = await run(http, ticket="I forgot my password.", query=12)

    assert ended["status"] == "failed"
    tried = [it["path"] for it in events if it["type"] == "step.scheduled.v1" and "search" in it["path"]]
    assert tried == ["tree/0/1/search", "tree/0/1/search~2"]
    assert "tree/respond" not in str(events)


async def test_a_tree_that_cannot_be_is_refused_with_every_problem_in_its_place(http):
    bad = (
        TREE.replace("attempts: 2", "attempts: 0")
        .replace("vars.found) > 0", "vars.found) > ")
        .replace("1.0.0", "1.0.1")
    )
    answer = await http.post("/api/v1/workflows", content=bad, headers={"Content-Type": "application/yaml"})

    assert answer.status_code == 422, answer.text
    places = {(it["line"], it["column"]) for it in answer.json()["problems"]}
    assert places == {(13, 25), (16, 40)}
