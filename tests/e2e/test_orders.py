"""What people ask of an execution under way, over REST, the SDK and `af`. Its only agent is hosted by nobody."""

import pytest

from agentflow.errors import Conflict, Invalid, NotFound
from agentflow.sdk.client import Client
from agentflow.testing import eventually

WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: nobody, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: lonely
    final_states: [lonely]
    states:
      lonely: {agent: hosted-by-nobody, timeout: 10m}
"""


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(WORKFLOW)


async def types(api: Client, execution: str) -> list[str]:
    return [event.type for event in await api.history(execution)]


async def test_an_execution_is_paused_resumed_changed_and_cancelled(api):
    execution = (await api.execute("nobody", {})).execution_id

    assert (await api.pause(execution, reason="supplier is down")).status == "paused"
    assert (await api.resume(execution)).status == "running"
    assert (await api.update_vars(execution, {"limit": 20})).status == "running"
    cancelled = await api.cancel(execution, reason="no longer wanted")

    assert (cancelled.status, cancelled.in_flight) == ("cancelled", [])
    assert cancelled.error is not None
    assert "no longer wanted" in cancelled.error.message
    assert await types(api, execution) == [
        "execution.started.v1",
        "step.scheduled.v1",
        "execution.paused.v1",
        "execution.resumed.v1",
        "vars.updated.v1",
        "execution.cancel_requested.v1",
        "step.halted.v1",
        "execution.cancelled.v1",
    ]


async def test_what_is_asked_of_an_ended_execution_is_a_conflict_with_a_hint(api):
    execution = (await api.execute("nobody", {})).execution_id
    await api.terminate(execution)

    for asked in (api.pause(execution), api.cancel(execution), api.signal(execution, "go"), api.retry(execution)):
        with pytest.raises(Conflict) as refused:
            await asked
        assert refused.value.hint


async def test_a_request_with_the_same_key_is_recorded_once(api):
    execution = (await api.execute("nobody", {})).execution_id
    for _ in range(2):
        answer = await api._send(
            "POST",
            f"/executions/{execution}/signal",
            content=b'{"name": "go", "payload": 1}',
            headers={"Content-Type": "application/json", "Idempotency-Key": "first"},
        )
        assert answer.status == 200

    assert (await types(api, execution)).count("signal.received.v1") == 1
    await api.terminate(execution)


async def test_af_asks_the_same(api, af):
    execution = (await api.execute("nobody", {})).execution_id

    assert af("executions", "pause", execution).stdout == f"{execution} is paused.\n"
    assert af("executions", "resume", execution).stdout == f"{execution} is running.\n"
    af("executions", "signal", execution, "go", "--payload", '{"by": "mara"}')
    assert "an object" in af("executions", "vars", execution, "[1]", may_fail=True).stderr
    assert af("executions", "cancel", execution, "--reason", "enough").stdout == f"{execution} is cancelled.\n"
    again = af("executions", "cancel", execution, may_fail=True)
    assert (again.returncode, "Traceback" in again.stderr) == (2, False)
    assert "cancelled" in again.stderr


FAMILY = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: asks-a-person, version: 1.2.0}
spec:
  planner: fsm
  fsm:
    initial_state: approve
    final_states: [done]
    states:
      approve:
        human:
          title: "May ${input.who} come in?"
          form: {type: object, required: [yes], properties: {yes: {type: boolean}}}
        timeout: 1h
        on_success: done
      done: {}
"""
PARENT = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: waits-for-it, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: knock
    final_states: [done]
    states:
      knock: {wait: {signal: knock}, timeout: 1h, on_success: ask}
      ask:
        subworkflow: {name: asks-a-person, version: ^1.0}
        input: {who: "${output.who}"}
        timeout: 1h
        on_success: done
      done: {}
"""


async def test_a_signal_a_child_and_a_person_move_an_execution_to_its_end(api, af):
    await api.push_workflow(FAMILY)
    await api.push_workflow(PARENT)
    parent = (await api.execute("waits-for-it", {})).execution_id

    await api.signal(parent, "knock", {"who": "Mara"})
    child = await eventually(lambda: the_child_of(api, parent), within_s=10)
    (task,) = child.tasks
    assert task["title"] == "May Mara come in?"
    listed = (await api.tasks()).items
    assert [(one.path, one.workflow, one.task["title"]) for one in listed if one.execution == child.id] == [
        (task["path"], "asks-a-person", "May Mara come in?")
    ]
    shown = af("tasks", "list").stdout
    assert (child.id in shown, "May Mara come in?" in shown) == (True, True)

    with pytest.raises(Invalid) as refused:
        await api.answer(child.id, task["path"], {"yes": "maybe"})
    assert "boolean" in str(refused.value.problems)
    await api.answer(child.id, task["path"], {"yes": True})

    ended = [event async for event in api.follow(parent)][-1]
    assert (ended.type, ended.data["output"]) == ("execution.completed.v1", {"yes": True})
    with pytest.raises(NotFound):
        await api.answer(child.id, task["path"], {"yes": True})
    assert child.id not in {one.execution for one in (await api.tasks()).items}


async def the_child_of(api: Client, parent: str):
    for summary in (await api.executions(workflow="asks-a-person")).items:
        execution = await api.execution(summary.id)
        if execution.parent is not None and execution.parent["execution"] == parent and execution.tasks:
            return execution
    return None
