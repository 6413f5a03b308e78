"""Starts that wait for their moment or for room, over REST, the SDK and `af`. Their agent is hosted by nobody."""

import pytest

from agentflow.errors import Conflict, Invalid, Rejected
from agentflow.sdk.client import Client
from agentflow.testing import eventually

WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: one-at-a-time, version: 1.0.0}
spec:
  planner: fsm
  concurrency: 1
  fsm:
    initial_state: lonely
    final_states: [lonely]
    states:
      lonely: {agent: hosted-by-nobody, timeout: 10m}
"""
PATIENT = WORKFLOW.replace("one-at-a-time", "one-at-a-time-for-a-moment").replace("10m", "700ms")


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(WORKFLOW)
    await api.push_workflow(PATIENT)


async def test_one_at_a_time_in_order_of_priority_and_an_end_lets_the_next_begin(api):
    first = (await api.execute("one-at-a-time", {})).execution_id
    await is_now(api, first, "running")
    later = (await api.execute("one-at-a-time", {})).execution_id
    urgent = (await api.execute("one-at-a-time", {}, priority=50)).execution_id
    await is_now(api, later, "queued")
    listed = await api.executions(workflow="one-at-a-time", status="queued")
    assert {item.id for item in listed.items} == {later, urgent}

    await api.cancel(first)
    await is_now(api, urgent, "running")
    assert (await api.execution(later)).status == "queued"
    await api.terminate(urgent)
    await is_now(api, later, "running")
    await api.terminate(later)


async def test_a_queued_execution_can_be_cancelled_but_not_paused(api):
    started = await api.execute("one-at-a-time", {}, delay="1h")
    waiting = await api.execution(started.execution_id)
    assert (waiting.status, waiting.queue["workflow_max"]) == ("queued", 1)
    assert waiting.queue["start_at"] > waiting.started_at

    with pytest.raises(Conflict, match="has not begun"):
        await api.pause(started.execution_id)
    assert (await api.cancel(started.execution_id)).status == "cancelled"


async def test_a_failed_execution_that_is_retried_queues_again(api):
    first = (await api.execute("one-at-a-time-for-a-moment", {})).execution_id
    await is_now(api, first, "failed")
    second = (await api.execute("one-at-a-time-for-a-moment", {})).execution_id
    await is_now(api, second, "running")

    retried = await api.retry(first)

    assert (retried.status, retried.queue["workflow_max"]) == ("queued", 1)
    await is_now(api, first, "failed")  # again, after its second turn
    turns = [event.at for event in await api.history(first) if event.type == "execution.begun.v1"]
    (left,) = [event.at for event in await api.history(second) if event.type == "execution.failed.v1"]
    assert len(turns) == 2
    assert turns[1] >= left


@pytest.mark.parametrize("how", [{"delay": "soon"}, {"delay": "1m", "start_at": "2026-01-01T00:00:00Z"}])
async def test_a_start_whose_moment_cannot_be_told_is_refused(api, how):
    with pytest.raises(Rejected, match="cannot be told"):
        await api.execute("one-at-a-time", {}, **how)


async def test_a_priority_out_of_bounds_is_refused(api):
    with pytest.raises(Invalid):
        await api.execute("one-at-a-time", {}, priority=1_000)


def test_af_run_takes_a_delay(af):
    assert '"status": "queued"' in af("run", "one-at-a-time", "--delay", "1h", "--detach", "--json").stdout


async def is_now(api: Client, execution: str, status: str) -> None:
    async def there() -> bool:
        return (await api.execution(execution)).status == status

    await eventually(there, within_s=10)
