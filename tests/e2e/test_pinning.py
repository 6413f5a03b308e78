"""A run keeps to what it began with, whatever is registered while it waits; and many are paused and resumed at once."""

from agentflow.sdk.client import Client
from agentflow.testing import eventually

FIRST = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: pinned, version: 1.0.0}
spec:
  planner: fsm
  vars: {colour: green}
  fsm:
    initial_state: ask
    final_states: [end]
    states:
      ask: {human: {title: "Go on?"}, timeout: 10m, on_success: middle}
      middle: {wait: {duration: 1ms}, on_success: end}
      end: {succeed: {said: "${steps.ask.output}", colour: "${vars.colour}"}}
"""
# `middle` is gone, and `colour` has another name.
SECOND = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: pinned, version: 2.0.0}
spec:
  planner: fsm
  vars: {shade: blue}
  fsm:
    initial_state: ask
    final_states: [end]
    states:
      ask: {human: {title: "Really?"}, timeout: 10m, on_success: end}
      end: {succeed: {answer: "${steps.ask.output}", shade: "${vars.shade}"}}
"""


async def parked(api: Client, version: str) -> str:
    execution = (await api.execute("pinned", {})).execution_id

    async def asks() -> bool:
        return bool((await api.execution(execution)).tasks)

    await eventually(asks, within_s=10)
    assert (await api.execution(execution)).workflow.version == version
    return execution


async def test_a_run_that_waits_for_a_person_ends_as_it_began_though_its_workflow_has_changed(api):
    await api.push_workflow(FIRST)
    old = await parked(api, "1.0.0")
    await api.push_workflow(SECOND)
    new = await parked(api, "2.0.0")

    for execution in (old, new):
        await api.answer(execution, "ask", "yes")
    outputs = {}
    for execution in (old, new):
        events = [event async for event in api.follow(execution)]
        outputs[execution] = events[-1].data["output"]

    assert outputs == {old: {"said": "yes", "colour": "green"}, new: {"answer": "yes", "shade": "blue"}}


async def test_all_executions_of_a_workflow_are_paused_and_go_on(api, af):
    await api.push_workflow(SECOND)
    waiting = [await parked(api, "2.0.0") for _ in range(3)]

    paused = af("executions", "pause", "--workflow", "pinned")

    assert paused.stdout == "3 paused.\n"
    assert {(await api.execution(one)).status for one in waiting} == {"paused"}
    assert await api.resume_all(workflow="pinned") == 3
    for one in waiting:
        assert (await api.terminate(one)).status == "cancelled"
