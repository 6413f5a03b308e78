"""Recorded executions decided again on the real platform: over REST, the SDK, the WebSocket and `af`."""

import json

import msgspec
import pytest
import websockets

from agentflow.errors import Invalid, NotFound
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.models import Replays

TEXT = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: NAME, version: VERSION}
spec:
  planner: fsm
  input: {type: object, properties: {n: {type: integer}}}
  vars: {n: 0}
  fsm:
    initial_state: told
    final_states: [end]
    states:
      told:
        wait: {signal: go}
        timeout: 1h
        vars: {n: "${output.n}"}
        transitions: [{condition: "output.n > LEAST", to: end}, {to: small}]
      small: {wait: {duration: 1ms}, on_success: end}
      end: {succeed: {n: "${vars.n}"}}
"""


def text(name: str, version: str, least: int = 1) -> str:
    return TEXT.replace("NAME", name).replace("VERSION", version).replace("LEAST", str(least))


async def ran(api, name: str, n: int) -> str:
    execution = (await api.execute(name, {"n": n})).execution_id
    await api.signal(execution, "go", {"n": n})
    async for _ in api.follow(execution):
        pass
    return execution


async def test_an_execution_replays_to_the_same_digest_as_often_as_one_likes(api):
    await api.push_workflow(text("replayed", "1.0.0"))
    execution = await ran(api, "replayed", 2)

    first = await api.records.replay(execution)
    again = await api.records.replay(execution)

    history = await api.history(execution)
    assert (first.identical, first.events, first.agreed, first.against) == (True, len(history), len(history), None)
    assert first == again
    assert len(first.digest) == 64


async def test_replaying_leaves_no_trace_and_asks_nobody(api):
    await api.push_workflow(text("replayed", "1.0.0"))
    execution = await ran(api, "replayed", 2)
    before = await api.history(execution)
    count = (await api.executions(workflow="replayed")).total_count

    await api.records.replay(execution)

    assert await api.history(execution) == before
    assert (await api.executions(workflow="replayed")).total_count == count


async def test_another_version_diverges_where_it_would_have_gone_elsewhere(api):
    await api.push_workflow(text("compared", "1.0.0"))
    await api.push_workflow(text("compared", "1.1.0", least=5))
    execution = (await api.execute("compared@1.0.0", {"n": 3})).execution_id
    await api.signal(execution, "go", {"n": 3})

    same = await api.records.replay(execution)
    other = await api.records.replay(execution, against="1.1.0")
    unregistered = await api.records.replay(execution, definition=text("compared", "9.9.9", least=5))

    assert same.identical
    assert other.against == "compared@1.1.0"
    assert other.divergence is not None
    assert (other.divergence.expected, other.divergence.got) == ("execution.completed.v1", "timer.started.v1")
    assert other.divergence.expected_data == {"output": {"n": 3}}
    assert (other.divergence.path, other.agreed) == ("small", other.divergence.version - 1)
    assert unregistered.divergence == other.divergence
    assert (await api.records.replay(execution, against="1.0.0")).identical


async def test_a_version_that_would_not_have_taken_the_input_diverges_at_the_start(api):
    await api.push_workflow(text("compared", "1.0.0"))
    execution = await ran(api, "compared@1.0.0", 3)
    strict = text("compared", "1.2.0").replace("type: integer", "type: string")

    found = await api.records.replay(execution, definition=strict)

    assert found.divergence is not None
    assert found.divergence.version == 1
    assert "does not take the input" in found.divergence.reason


async def test_what_cannot_be_replayed_is_refused_at_once(api):
    await api.push_workflow(text("replayed", "1.0.0"))
    execution = await ran(api, "replayed", 2)

    for wrong in ({"against": "7.7.7"}, {"workflow": "nowhere"}):
        with pytest.raises(NotFound):
            await api.records.replay(execution, **wrong)
    with pytest.raises(NotFound):
        await api.records.replay("exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA", workflow="replayed")
    with pytest.raises(Invalid):
        await api.records.replay(execution, definition="not: a workflow")


async def test_many_are_replayed_by_a_job_that_tells_over_a_socket_how_far_it_is(api, platform):
    await api.push_workflow(text("many", "1.0.0"))
    ours = [await ran(api, "many", n) for n in range(4)]

    job = await api.records.replay_many("many", last=3, definition=text("many", "1.1.0", least=5))
    url = platform.api_url.replace("http://", "ws://") + "/api/v1/ws"
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    async with websockets.connect(url, proxy=None, additional_headers=headers) as socket:
        await socket.send(json.dumps({"type": "subscribe", "id": "mine", "job": job.id}))
        said = [json.loads(await socket.recv())]
        while said[-1]["job"]["status"] not in ("succeeded", "failed"):
            said.append(json.loads(await socket.recv()))

    assert {one["type"] for one in said} == {"job"}
    assert said[-1]["job"]["status"] == "succeeded"
    found = msgspec.convert((await api.records.job(job.id)).result, Replays)
    assert [one.execution_id for one in found.items] == list(reversed(ours))[:3]
    assert (found.replayed, found.diverged) == (3, 2)  # 2 and 3 would have been small; 1 was so before
    assert all(one.divergence is None or one.divergence.expected_data is None for one in found.items)


async def test_the_same_key_is_the_same_job(http, api):
    await api.push_workflow(text("many", "1.0.0"))

    answers = [
        await http.post("/api/v1/workflows/many/replay", json={"last": 2}, headers={"Idempotency-Key": "k-replay"})
        for _ in range(2)
    ]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["job_id"] == answers[1].json()["job_id"]
    assert answers[0].headers["location"] == f"/api/v1/jobs/{answers[0].json()['job_id']}"


async def test_a_program_without_an_event_loop_replays_as_well(api, platform):
    await api.push_workflow(text("replayed", "1.0.0"))
    execution = await ran(api, "replayed", 2)

    with BlockingClient(platform.api_url, api_key=platform.api_key) as client:
        assert client.replay(execution).identical
        assert client.replay_many("replayed", last=2).diverged == 0


async def test_a_person_replays_in_a_terminal(api, af, tmp_path):
    await api.push_workflow(text("shown", "1.0.0"))
    execution = await ran(api, "shown", 3)
    (tmp_path / "next.yaml").write_text(text("shown", "1.1.0", least=5))

    assert "events, decided again by shown@1.0.0, are the same" in af("replay", execution).stdout
    other = af("replay", execution, "--file", "next.yaml", may_fail=True)
    assert other.returncode == 2
    assert "recorded  execution.completed.v1" in other.stdout
    assert "decided   timer.started.v1" in other.stdout
    assert json.loads(af("replay", "--workflow", "shown", "--json").stdout)["diverged"] == 0
    many = af("replay", "--workflow", "shown", "--file", "next.yaml", may_fail=True)
    assert (many.returncode, "0 came out as they were, 1 did not" in many.stdout) == (2, True)
