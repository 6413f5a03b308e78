"""A state machine with nested work on the real platform: branches, items, a wait and a compensation."""

import pytest

MACHINE = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: triage-machine, version: 1.0.0}
spec:
  planner: fsm
  input: {type: object, required: [tickets], properties: {tickets: {type: array}, fail: {type: boolean}}}
  timeout: 1m
  vars: {seen: 0}
  fsm:
    initial_state: look
    final_states: [done]
    states:
      look:
        parallel:
          branches:
            search: {tool: kb.search, input: {query: password reset}}
            each:
              initial_state: classify
              final_states: [classify]
              states:
                classify:
                  map:
                    over: "${input.tickets}"
                    concurrency: 2
                    do: {agent: classifier, input: {text: "${item}"}}
                  vars: {seen: "${size(output.results)}"}
        compensation: {tool: kb.search, input: {query: undo}}
        on_success: pause
      pause: {wait: {duration: 100ms}, on_success: decide}
      decide:
        choice:
          - {condition: "has(input.fail) && input.fail", to: refuse}
          - {to: done}
      refuse: {fail: {code: refused, message: "After ${vars.seen} tickets."}}
      done:
"""


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(MACHINE)


async def run(http, **given):
    answer = await http.post("/api/v1/workflows/triage-machine/execute", json={"input": given, "wait": True})
    assert answer.status_code == 200, answer.text
    ended = answer.json()
    events = (await http.get(f"/api/v1/executions/{ended['execution_id']}/events")).json()["items"]
    return ended, [event["data"]["path"] for event in events if event["type"] == "step.scheduled.v1"]


async def test_branches_and_items_run_and_the_machine_ends(http):
    ended, paths = await run(http, tickets=["I forgot my password.", "Where is my invoice?", "Hello"])

    assert ended["status"] == "completed", ended
    assert sorted(paths) == [f"look/each/classify/{n}" for n in range(3)] + ["look/search"]


async def test_a_failing_machine_undoes_its_work_before_it_fails(http):
    ended, paths = await run(http, tickets=["Hello"], fail=True)

    assert (ended["status"], ended["error"]["code"]) == ("failed", "refused"), ended
    assert ended["error"]["message"] == "After 1 tickets."
    assert paths[-1] == "!undo/1"


WIDE = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: wide, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: each
    final_states: [done]
    states:
      each:
        map: {over: "${input.texts}", concurrency: 200, do: {agent: classifier, input: {text: "${item}"}}}
        result: "${size(output.results)}"
        on_success: done
      done: {succeed: {results: "${steps.each.output}"}}
"""
ITEMS = 10_000


async def test_ten_thousand_items_are_mapped_each_once(api):
    await api.push_workflow(WIDE)
    started = await api.execute("wide", {"texts": ["Hello"] * ITEMS})

    events = [event async for event in api.follow(started.execution_id)]

    assert (events[-1].type, events[-1].data["output"]) == ("execution.completed.v1", {"results": ITEMS})
    done = [event.data["path"] for event in events if event.type == "step.succeeded.v1"]
    assert sorted(done) == sorted(f"each/{number}" for number in range(ITEMS))
