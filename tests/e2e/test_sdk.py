"""The Python SDK against a real platform: lists that page themselves, live events, and calls without an event loop."""

import asyncio

import pytest

from agentflow.errors import NotFound
from agentflow.sdk import BlockingClient

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: sdk-holds, version: 1.0.0, tags: [sdk]}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(WORKFLOW)


async def test_lists_page_themselves_and_take_every_filter(api):
    started = [(await api.execute("sdk-holds", {"batch": "one", "n": n})).execution_id for n in range(5)]

    found = [item.id async for item in api.iter_executions(workflow="sdk-holds", input={"batch": "one"}, limit=2)]
    tagged = [item.name async for item in api.iter_workflows(tag="sdk", limit=1)]

    assert found == started[::-1]
    assert tagged == ["sdk-holds"]
    assert [step.name for step in await api.steps(started[0])] == []


async def test_live_events_are_iterated_each_once_and_in_order(api):
    execution = (await api.execute("sdk-holds", {})).execution_id
    await api.pause(execution)
    await api.resume(execution)
    await api.signal(execution, "go")
    story = [(event.version, event.type) async for event in api.follow(execution)]

    seen, last = [], 0
    async with asyncio.timeout(20):
        while len(seen) < len(story):
            async for event in api.watch(execution=execution, after=last):
                seen.append((event.version, event.type))
                last = event.seq
                if len(seen) % 2 == 0 or len(seen) == len(story):
                    break  # and come back from there

    assert seen == story


def test_a_program_without_an_event_loop_calls_and_iterates_the_same(platform, support):
    with BlockingClient(platform.api_url, api_key=platform.api_key) as af:
        af.push_workflow(support)
        ticket = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}
        done = af.execute("support", ticket, wait=True)
        assert (done.status, done.output["status"]) == ("completed", "answered")
        assert [event.version for event in af.follow(done.execution_id)] == [
            event.version for event in af.history(done.execution_id)
        ]
        first = next(iter(af.watch(execution=done.execution_id, after=0)))
        assert (first.version, first.type) == (1, "execution.started.v1")
        assert done.execution_id in [item.id for item in af.executions(workflow="support", limit=1)]
        assert af.call(lambda client: client.ready())
        with pytest.raises(NotFound):
            af.execution("exec_nowhere")
