"""UA-7 c: a fork finds the files as they were, in a loop inside a branch inside a sub-run; and nothing leaks back."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import Conflict
from agentflow.sdk.client import Client

AGENTS = """\
apiVersion: agentflow/v1
kind: Agents
tools:
  shell.run: {type: builtin, permissions: [fs.workspace]}
"""
BUILDING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: building, version: 1.0.0}
spec:
  planner: fsm
  vars: {built: 0}
  fsm:
    initial_state: both
    final_states: [look]
    states:
      both:
        parallel:
          branches:
            beside: {tool: shell.run, input: {script: "mkdir beside; echo done > beside/note", in_workspace: true}}
            rounds:
              initial_state: rounds
              final_states: [rounds]
              states:
                rounds:
                  loop:
                    while: "index < 9"
                    max: 10
                    do:
                      initial_state: build
                      final_states: [build]
                      states:
                        build:
                          tool: shell.run
                          input: {script: "echo ${index} >> log; mkdir r${index}; echo ${vars.built} > r${index}/built", in_workspace: true}
                          vars: {built: "${vars.built + 1}"}
        result: "${vars.built}"
        on_success: look
      look: {tool: shell.run, input: {script: "find . -type f | sort | xargs head -n 99", in_workspace: true}}
"""  # noqa: E501
CALLING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: calls-building, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: both
    final_states: [done]
    states:
      both:
        parallel:
          branches:
            build:
              initial_state: build
              final_states: [build]
              states:
                build: {subworkflow: {name: building, version: "*"}, timeout: 5m}
            beside: {tool: shell.run, input: {script: "echo of the parent > log", in_workspace: true}}
        on_success: done
      done:
"""
LOOKING = {"script": "cat log beside/note; ls", "in_workspace": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("platform")


@pytest.fixture(scope="module")
def platform(folder: Path) -> Iterator[EmbeddedPlatform]:
    (folder / "agents.yaml").write_text(AGENTS)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        running = embedded_platform(folder / "home", agents_file=folder / "agents.yaml")
        started = runner.run(running.__aenter__())
        try:
            yield started
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
async def api(platform: EmbeddedPlatform) -> AsyncIterator[Client]:
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        yield client


@pytest.fixture
async def child(api) -> str:
    """A sub-run in a branch of its parent, which is over."""
    for workflow in (BUILDING, CALLING):
        await api.push_workflow(workflow)
    parent = await api.execute("calls-building", {}, wait=True)
    assert parent.status == "completed"
    (child,) = [
        one.id
        for one in (await api.executions(workflow="building")).items
        if ((await api.execution(one.id)).parent or {}).get("execution") == parent.execution_id
    ]
    return child


async def ended(api: Client, execution: str):
    async for _ in api.follow(execution):
        pass
    return await api.execution(execution)


async def rounds_of(api: Client, execution: str) -> list[str]:
    """The paths of all rounds of the loop, in order."""
    scheduled = [event for event in await api.history(execution) if event.type == "step.scheduled.v1"]
    return list(dict.fromkeys(event.data["path"] for event in scheduled if event.data["name"] == "build"))


def left_in(events, path: str) -> dict:
    """What a step left in the workspace, as its event records it."""
    (done,) = [event for event in events if event.type == "step.succeeded.v1" and event.data["path"] == path]
    return done.data["workspace"]


async def state_at(api: Client, execution: str, version: int) -> dict:
    answer = await api._send("GET", f"/executions/{execution}/state", params={"version": version})
    return json.loads(answer.content)


async def test_a_fork_at_the_seventh_round_has_the_state_and_files_of_then_and_the_original_keeps_its_own(api, child):
    original = await api.history(child)
    rounds = await rounds_of(api, child)
    seventh, eighth = rounds[6], rounds[7]

    fork = await ended(api, (await api.fork(child, from_=seventh, input=LOOKING)).execution_id)

    assert fork.status == "completed"
    taken, history = original[: fork.forked["version"]], await api.history(fork.id)
    then = max((e.data["workspace"] for e in taken if e.data.get("workspace")), key=lambda left: left["number"])
    (forked,) = [event for event in history if event.type == "execution.forked.v1"]
    assert forked.data["workspace"]["digest"] == then["digest"]
    for known in ("vars", "outputs"):
        here, there = await state_at(api, fork.id, forked.version), await state_at(api, child, fork.forked["version"])
        assert here[known] == there[known], known
    seen = next(e for e in history[forked.version :] if e.type == "step.succeeded.v1" and e.data["path"] == seventh)
    assert seen.data["output"]["stdout"].split() == [*"012345", "done", "beside", "log", *(f"r{n}" for n in range(6))]
    assert left_in(history, seventh)["digest"] == then["digest"], "looking changed nothing"
    assert left_in(history, eighth)["digest"] != left_in(original, eighth)["digest"]

    assert "==> ./r7/built <==\n7" in fork.outputs["look"]["stdout"]
    assert "./r6/" not in fork.outputs["look"]["stdout"], "the seventh round was another one here"
    assert await api.history(child) == original
    again = await ended(api, (await api.fork(child, from_="look")).execution_id)
    assert again.outputs["look"] == (await api.execution(child)).outputs["look"], "nothing has leaked back"
    assert "of the parent" not in again.outputs["look"]["stdout"]


async def test_a_fork_is_forked_where_it_went_its_own_way_and_where_it_had_only_taken_over(api, child):
    rounds = await rounds_of(api, child)
    fork = await ended(api, (await api.fork(child, from_=rounds[6], input=LOOKING)).execution_id)

    own = await ended(api, (await api.fork(fork.id, after=rounds[7])).execution_id)
    taken = await ended(api, (await api.fork(fork.id, from_=rounds[2], input=LOOKING)).execution_id)

    assert own.outputs["look"] == fork.outputs["look"]
    (seen,) = [
        event
        for event in await api.history(taken.id)
        if event.type == "step.succeeded.v1" and event.data["path"] == rounds[2]
    ]
    assert seen.data["output"]["stdout"].split()[:3] == ["0", "1", "done"]


async def test_a_fork_whose_files_are_not_there_any_more_is_refused_before_it_begins(api, child, folder):
    (shelf,) = folder.glob(f"home/artifacts/*/{child}.1")
    before = (await api.executions(workflow="building")).total_count
    shutil.rmtree(shelf)

    with pytest.raises(Conflict, match="is kept no more") as refused:
        await api.fork(child, from_="look")

    assert refused.value.code == "AF1286"
    assert (await api.executions(workflow="building")).total_count == before
