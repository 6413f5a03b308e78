"""Pausing a workflow, a tenant or the whole deployment stops what is dispatched within five seconds (UA-7 d)."""

import uuid

import pytest

from agentflow.clock import SystemClock, parse_rfc3339
from agentflow.errors import Forbidden
from agentflow.sdk.client import Client
from agentflow.testing import eventually

EXECUTIONS, WITHIN_S = 60, 5.0
# Its agent is hosted by nobody, so each attempt is over soon and the next is dispatched: all of them, all the time.
WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: restless, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: lonely
    final_states: [lonely]
    states:
      lonely: {agent: hosted-by-nobody, timeout: 500ms, retry: {max_attempts: 100, initial: 1ms, max: 1ms}}
"""


async def test_pausing_a_workflow_or_all_of_the_tenant_stops_new_dispatch_within_five_seconds(api, af):
    await api.push_workflow(WORKFLOW)
    started = [(await api.execute("restless", {})).execution_id for _ in range(EXECUTIONS)]
    for scope in (("--workflow", "restless"), ("--all",)):
        asked_ms = SystemClock().now_ms()
        af("executions", "pause", *scope)

        dispatched = [
            parse_rfc3339(event.at)
            for execution in started
            for event in await api.history(execution)
            if event.type == "step.scheduled.v1"
        ]
        assert max(dispatched) - asked_ms <= WITHIN_S * 1000
        assert (await api.executions(workflow="restless", status="paused")).total_count == EXECUTIONS
        af("executions", "resume", *scope)
    for execution in started:
        await api.terminate(execution)


async def on_record(client: Client):
    return (await client.audit.list({"action": "platform.pause"})).items


@pytest.fixture
async def theirs(api):
    """The first admin of another tenant."""
    made = await api.identity.add_tenant(f"t-{uuid.uuid4().hex[:8]}")
    async with Client(api.api_url, api_key=made.admin.api_key) as client:
        yield client


async def test_pausing_the_deployment_stops_every_tenant_and_resuming_it_leaves_what_a_tenant_paused(api, af, theirs):
    started = []
    for client in (api, theirs):
        await client.push_workflow(WORKFLOW)
        started += [(client, (await client.execute("restless", {})).execution_id) for _ in range(EXECUTIONS // 2)]
    (_, own), *_ = [one for one in started if one[0] is theirs]
    await theirs.pause(own, reason="ours to say")
    asked_ms = SystemClock().now_ms()

    said = af("executions", "pause", "--everywhere", "--reason", "the provider is down").stdout

    assert int(said.split(" of ")[1].split()[0]) >= 2, "tenants"
    histories = [await client.history(execution) for client, execution in started]
    dispatched = [
        parse_rfc3339(event.at) for history in histories for event in history if event.type == "step.scheduled.v1"
    ]
    assert max(dispatched) - asked_ms <= WITHIN_S * 1000
    assert [(await client.execution(execution)).status for client, execution in started] == ["paused"] * len(started)
    told = await eventually(lambda: on_record(theirs), within_s=5)
    assert len(told) == 1, "the tenant's own trail says who did it, once"

    af("executions", "resume", "--everywhere")

    still = [execution for client, execution in started if (await client.execution(execution)).status == "paused"]
    assert still == [own]
    for client, execution in started:
        await client.terminate(execution)


async def test_only_who_runs_the_deployment_may_pause_it(theirs):
    with pytest.raises(Forbidden):
        await theirs.pause_everywhere()
    with pytest.raises(Forbidden):
        await theirs.resume_everywhere()
