"""Moving a run to another version of its workflow: an explicit act, judged first, by the owner, and on record."""

import asyncio

import pytest

from agentflow.errors import Conflict
from agentflow.sdk.client import Client
from agentflow.testing import eventually
from tests.e2e import test_pinning

FIRST, SECOND = (text.replace("pinned", "moved") for text in (test_pinning.FIRST, test_pinning.SECOND))
THIRD = FIRST.replace("1.0.0", "1.1.0").replace("said:", "heard:")


async def pushed_and_parked(api: Client) -> str:
    for text in (FIRST, SECOND, THIRD):
        await api.push_workflow(text)
    execution = (await api.execute("moved@1.0.0", {})).execution_id
    await eventually(lambda: _asks(api, execution), within_s=10)
    return execution


async def _asks(api: Client, execution: str) -> bool:
    return bool((await api.execution(execution)).tasks)


async def test_a_run_is_moved_to_a_version_that_has_what_it_waits_for(api):
    execution = await pushed_and_parked(api)

    moved = await api.move(execution, "1.1.0", reason="wording")

    assert moved.workflow.version == "1.1.0"
    (listed,) = [one async for one in api.iter_executions(workflow="moved@1.1.0") if one.id == execution]
    assert listed.workflow.version == "1.1.0"
    await api.answer(execution, "ask", "yes")
    events = [event async for event in api.follow(execution)]
    assert events[-1].data["output"] == {"heard": "yes", "colour": "green"}
    (event,) = [event for event in events if event.type == "execution.moved.v1"]
    assert (event.data["reason"], event.data["workflow"]["version"]) == ("wording", "1.1.0")
    replay = await api.records.replay(execution)
    assert (replay.identical, replay.workflow) == (True, "moved@1.1.0")


async def test_a_dry_run_names_node_and_key_and_a_refused_run_is_left_untouched(api, af):
    execution = await pushed_and_parked(api)
    before = await api.history(execution)

    unclear = af("migrate", "--run", execution, "--to", "2.0.0", "--dry-run", may_fail=True)
    assert (unclear.returncode, unclear.stdout.splitlines()[0]) == (
        2,
        f"needs_mapping: {execution} to version 2.0.0",
    )
    assert "key `vars.shade`" in unclear.stdout
    await api.answer(execution, "ask", "yes")
    other = (await api.execute("moved@2.0.0", {})).execution_id
    await api.push_workflow(SECOND.replace("2.0.0", "3.0.0").replace("ask", "question"))
    refused = af("migrate", "--run", other, "--to", "3.0.0", may_fail=True)
    assert (refused.returncode, "refused" in refused.stdout, "node `ask`" in refused.stdout) == (2, True, True)
    with pytest.raises(Conflict):
        await api.move(other, "3.0.0")

    assert [event.type for event in await api.history(other)] == ["execution.started.v1", *_opened(before)]
    assert (await api.execution(other)).workflow.version == "2.0.0"
    await api.terminate(other)


def _opened(events) -> list[str]:
    """What a run of any version records when it opens its task."""
    return [event.type for event in events[1:]]


async def test_a_renamed_variable_is_mapped_by_an_operator(api, af):
    execution = await pushed_and_parked(api)
    await api.update_vars(execution, {"colour": "red"})

    said = af("migrate", "--run", execution, "--to", "2.0.0", "--map", "shade=colour", "--reason", "OPS-1")

    assert said.stdout.strip() == f"{execution} goes on by moved 2.0.0."
    await api.answer(execution, "ask", "yes")
    events = [event async for event in api.follow(execution)]
    assert events[-1].data["output"] == {"answer": "yes", "shade": "red"}


async def test_a_run_that_goes_on_meanwhile_is_judged_where_it_then_stands(api):
    """The owner decides at one version: either the move comes first, or what happened does."""
    execution = await pushed_and_parked(api)
    updates = [api.update_vars(execution, {"colour": f"c{at}"}) for at in range(5)]

    moved, *_ = await asyncio.gather(api.move(execution, "1.1.0"), *updates)

    assert moved.workflow.version == "1.1.0"
    assert (await api.records.replay(execution)).identical
    await api.terminate(execution)
