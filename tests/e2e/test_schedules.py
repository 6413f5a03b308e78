"""`af schedule` and its routes, on the whole platform. Its workflow's agent is hosted by nobody."""

import json

import pytest

from agentflow.errors import Conflict, Invalid, NotFound
from agentflow.testing import eventually

WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: by-the-clock, version: 1.0.0}
spec:
  planner: fsm
  input: {type: object, required: [n]}
  fsm:
    initial_state: lonely
    final_states: [lonely]
    states:
      lonely: {agent: hosted-by-nobody, timeout: 10m}
"""


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(WORKFLOW)


async def test_a_schedule_starts_one_execution_skips_while_it_runs_and_is_paused_and_deleted(api, af):
    af("schedule", "create", "second", "by-the-clock", "--every", "1s", "--input", '{"n": 1}')

    async def has_skipped() -> bool:
        return (await api.schedule("second")).skipped >= 1

    await eventually(has_skipped, within_s=15)
    paused = json.loads(af("schedule", "pause", "second", "--json").stdout)
    assert (paused["status"], paused["fired"], paused["next_at"]) == ("paused", 1, None)
    begun = await api.execution(paused["recent"][-1]["execution"])
    assert (begun.status, begun.input, begun.workflow.name) == ("running", {"n": 1}, "by-the-clock")
    assert "skipped" in af("schedule", "show", "second").stdout
    assert "second" in af("schedule", "list").stdout
    assert (await api.resume_schedule("second")).status == "active"
    af("schedule", "delete", "second")
    with pytest.raises(NotFound):
        await api.schedule("second")
    await api.terminate(begun.id)


async def test_a_schedule_is_triggered_by_hand_once_for_a_key(api, af):
    await api.create_schedule("yearly", "by-the-clock", {"n": 2}, cron="0 0 1 1 *", timezone="Europe/Berlin")
    first = await api.trigger_schedule("yearly", key="now")

    assert await api.trigger_schedule("yearly", key="now") == first
    assert af("schedule", "trigger", "yearly", "--key", "now").stdout.strip() == first
    second = await api.trigger_schedule("yearly")
    assert second != first
    shown = await api.schedule("yearly")
    assert (shown.fired, {fire.execution for fire in shown.recent}) == (2, {first, second})
    assert shown.next_at.endswith("-12-31T23:00:00.000Z")
    for execution in (first, second):
        await api.terminate(execution)


async def test_the_same_again_changes_nothing_and_another_of_its_name_is_refused(api):
    made = await api.create_schedule("same", "by-the-clock", {"n": 3}, cron="0 0 1 1 *")

    assert await api.create_schedule("same", "by-the-clock", {"n": 3}, cron="0 0 1 1 *") == made
    with pytest.raises(Conflict):
        await api.create_schedule("same", "by-the-clock", {"n": 4}, cron="0 0 1 1 *")


@pytest.mark.parametrize(
    "when",
    [{"cron": "61 * * * *"}, {}, {"every": "10ms"}, {"every": "soon"}, {"cron": "* * * * *", "timezone": "Mars/Base"}],
)
async def test_what_cannot_fire_is_refused_with_its_place(api, when):
    with pytest.raises(Invalid) as refused:
        await api.create_schedule("bad", "by-the-clock", {"n": 1}, **when)
    assert refused.value.problems


async def test_an_input_that_the_workflow_would_refuse_is_refused_at_once(api):
    with pytest.raises(Invalid):
        await api.create_schedule("bad", "by-the-clock", {}, cron="0 0 1 1 *")
    with pytest.raises(NotFound):
        await api.create_schedule("bad", "no-such-workflow", {}, cron="0 0 1 1 *")
