"""Another execution with the beginning of one, by the SDK and `af`: in a loop, in a branch, in a child; and in bulk."""

import json
from itertools import takewhile

import pytest

from agentflow.errors import Conflict, Invalid
from agentflow.sdk.client import Client

COUNTING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: counting, version: 1.0.0}
spec:
  planner: fsm
  vars: {said: 0}
  fsm:
    initial_state: both
    final_states: [done]
    states:
      both:
        parallel:
          branches:
            quiet: {tool: json.transform, input: {value: {}, template: {quiet: "$"}}}
            loud:
              initial_state: rounds
              final_states: [rounds]
              states:
                rounds:
                  loop:
                    while: "index < 9"
                    max: 10
                    do:
                      initial_state: say
                      final_states: [say]
                      states:
                        say:
                          tool: json.transform
                          input: {value: {round: "${index}", said: "${vars.said}"}, template: {round: "$.round"}}
                          vars: {said: "${vars.said + 1}"}
        result: "${vars.said}"
        on_success: done
      done:
"""
CALLING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: calling, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: call
    final_states: [done]
    states:
      call: {subworkflow: {name: counting, version: "*"}, timeout: 5m, on_success: done}
      done:
"""
CHOOSING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: choosing, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: look
    final_states: [good, bad]
    states:
      look:
        tool: json.transform
        input: {value: {fine: "${input.fine}"}, template: {fine: "$.fine"}}
        transitions:
          - {condition: "output.value.fine", to: good}
          - {to: bad}
      good: {tool: json.transform, input: {value: 1, template: "$"}}
      bad: {tool: json.transform, input: {value: 1}}     # refused: it lacks a template
"""


@pytest.fixture(autouse=True)
async def registered(api):
    for workflow in (COUNTING, CALLING):
        await api.push_workflow(workflow)


async def ended(api: Client, execution: str):
    async for _ in api.follow(execution):
        pass
    return await api.execution(execution)


async def test_a_child_is_forked_at_the_seventh_round_of_a_loop_in_a_branch_and_the_original_is_left_alone(api):
    parent = (await api.execute("calling", {}, wait=True)).execution_id
    child = next(item.id for item in (await api.executions(workflow="counting")).items)
    original = await api.history(child)
    rounds = [event.data["path"] for event in original if "rounds" in str(event.data.get("path"))]
    seventh = list(dict.fromkeys(rounds))[6]

    fork = await ended(api, (await api.fork(child, from_=seventh, reason="what if")).execution_id)

    assert (fork.status, fork.parent, fork.forked["path"]) == ("completed", None, seventh)
    assert fork.vars == {"said": 9}
    assert await api.history(child) == original
    history = await api.history(fork.id)
    kept = [event.type for event in takewhile(lambda event: event.type != "execution.forked.v1", history)]
    assert kept == [event.type for event in original[: fork.forked["version"]]]
    done_again = [event.data["path"] for event in history[len(kept) :] if event.type == "step.succeeded.v1"]
    assert [path for path in done_again if "rounds" in path] == list(dict.fromkeys(rounds))[6:], "rounds 1 to 6 stand"
    assert (await api.execution(parent)).status == "completed"


async def test_what_if_an_outcome_had_been_another_and_the_edit_is_on_record(api, af):
    await api.push_workflow(CHOOSING)
    failed = await api.execute("choosing", {"fine": False}, wait=True)
    assert (failed.status, (await api.execution(failed.execution_id)).failed_at) == ("failed", "bad")

    said = af(
        "executions", "fork", failed.execution_id, "--after", "look", "--output", '{"value": {"fine": true}}', "--json"
    )  # fmt: skip
    fork = await ended(api, json.loads(said.stdout)["execution_id"])

    assert (fork.status, fork.forked["edited"]) == ("completed", ["output"])
    (recorded,) = [event for event in await api.history(fork.id) if event.type == "execution.forked.v1"]
    assert recorded.data["of"] == {
        "execution": failed.execution_id, "version": 2, "path": "look", "going": "after", "edited": ["output"],
    }  # fmt: skip


async def test_all_that_failed_at_a_step_are_counted_first_and_then_forked(api, af):
    await api.push_workflow(CHOOSING.replace("choosing", "choosing-often"))
    failed = {(await api.execute("choosing-often", {"fine": False}, wait=True)).execution_id for _ in range(3)}
    await api.execute("choosing-often", {"fine": True}, wait=True)
    since = ("--since", "2026-01-01T00:00:00Z")
    asked = ("executions", "fork", "--failed-at", "bad", "--workflow", "choosing-often", *since)

    assert "3 would be forked from `bad`." in af(*asked, "--dry-run").stdout
    assert (await api.executions(workflow="choosing-often")).total_count == 4
    told = json.loads(af(*asked, "--input", '{"value": 1, "template": "$"}', "--json").stdout)

    assert (told["count"], set(told["forks"])) == (3, failed)
    forks = [await ended(api, fork) for fork in told["forks"].values()]
    assert {(fork.forked["execution"], fork.outputs["bad"]["value"]) for fork in forks} == {(one, 1) for one in failed}


async def test_the_same_fork_sent_twice_is_one_and_a_place_that_is_none_is_refused(api):
    execution = (await api.execute("counting", {}, wait=True)).execution_id

    first, again = [await api.fork(execution, from_="both/quiet", key="fork-once") for _ in range(2)]
    assert first.execution_id == again.execution_id
    await ended(api, first.execution_id)
    with pytest.raises(Conflict, match="never came to") as refused:
        await api.fork(execution, from_="nowhere")
    assert "--events" in refused.value.hint
    with pytest.raises(Invalid):
        await api.fork(execution, from_="both", output=1)
