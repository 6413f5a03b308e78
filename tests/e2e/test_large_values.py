"""Values far beyond what a message or a row may hold, through the whole platform: nobody who uses it notices."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import AgentFlowError
from agentflow.sdk.client import Client

MEGABYTES = 20

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  maker: {type: function, call: "large_agents:make"}
  measurer: {type: function, call: "large_agents:measure"}
"""

CODE = """
def make(input):
    return {"text": "x" * (input["megabytes"] * 1024 * 1024), "count": 3, "seen": len(input.get("note", ""))}

def measure(input):
    return {"chars": len(input["data"]["text"]), "again": input["data"]}
"""

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: large, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: make
    final_states: [measure]
    states:
      make:
        agent: maker
        input: {megabytes: "${input.megabytes}", note: "${input.note}"}
        transitions: [{condition: "count == 3", to: measure}]
      measure: {agent: measurer, input: {data: "${steps.make.output}"}}
"""


@pytest.fixture
async def large(tmp_path: Path) -> AsyncIterator[tuple[EmbeddedPlatform, Path]]:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "large_agents.py").write_text(CODE)
    home = tmp_path / "home"
    async with embedded_platform(home, agents_file=tmp_path / "agents.yaml") as platform:
        yield platform, home


async def test_an_output_of_twenty_megabytes_and_an_input_of_one_pass_from_step_to_step_and_back_to_the_caller(
    large: tuple[EmbeddedPlatform, Path],
) -> None:
    platform, home = large
    note = "n" * 1024 * 1024
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        await client.push_workflow(WORKFLOW)
        started = await client.execute("large", {"megabytes": MEGABYTES, "note": note}, wait=True)

        assert started.status == "completed", started.error
        assert started.output["chars"] == MEGABYTES * 1024 * 1024
        assert len(started.output["again"]["text"]) == MEGABYTES * 1024 * 1024
        shown = await client.execution(started.execution_id)
        assert shown.input["note"] == note
        history = await client.history(started.execution_id)
        assert [event.type for event in history][-1] == "execution.completed.v1"
        made = next(event for event in history if event.type == "step.succeeded.v1")
        assert (len(made.data["output"]["text"]), made.data["output"]["seen"]) == (MEGABYTES * 1024 * 1024, len(note))

    with closing(sqlite3.connect(home / "agentflow.db")) as database:
        longest = database.execute("SELECT max(length(event_data)) FROM event_store").fetchone()[0]
    assert longest <= 1024
    blobs = list((home / "artifacts" / "default" / started.execution_id).glob("*.zst"))
    # The input (also the first step's), the first output (also in the second's input), the second (also the whole's).
    assert len(blobs) == 3


async def test_a_value_that_was_lost_is_told_at_once_and_nothing_hangs(large: tuple[EmbeddedPlatform, Path]) -> None:
    platform, home = large
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        await client.push_workflow(WORKFLOW)
        done = await client.execute("large", {"megabytes": 1, "note": ""}, wait=True)
        for blob in (home / "artifacts").rglob("*.zst"):
            blob.unlink()

        with pytest.raises(AgentFlowError, match="not in the artifact store") as caught:
            await client.execution(done.execution_id)
        assert caught.value.code == "AF1601"
        assert [item.id for item in (await client.executions()).items] == [done.execution_id]
