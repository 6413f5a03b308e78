"""Keys, retention and the report through the real platform and the real `af`: what an operator does, step by step."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.contracts.step import Heartbeat
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.ids import WorkerId
from agentflow.sdk.client import Client
from agentflow.testing import eventually

ROOT = Path(__file__).parents[2]
CANARY = "canary-49b1e0"
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  echo: {type: function, call: "echo_agents:echo"}
"""
CODE = "def echo(input):\n    return input\n"
WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: echoing, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: say
    final_states: [say]
    states:
      say: {agent: echo, input: {text: "${input.text}", more: "${input.more}"}}
"""


def af(home: Path, *arguments: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AF_")}  # noqa: TID251
    done = subprocess.run(
        [Path(sys.executable).with_name("af"), *arguments],
        env={**environment, "AF_HOME": str(home), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_with(canary: str, home: Path) -> list[str]:
    """The database and the artifacts; the bus has an encryption of its own."""
    places = [*home.glob("agentflow.db*"), *(home / "artifacts").rglob("*.zst")]
    return [path.name for path in places if canary.encode() in path.read_bytes()]


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "echo_agents.py").write_text(CODE)
    return tmp_path / "agents.yaml"


async def run_echo(platform: EmbeddedPlatform) -> str:
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        await client.push_workflow(WORKFLOW)
        small = await client.execute("echoing", {"text": CANARY, "more": ""}, wait=True)
        assert small.output == {"text": CANARY, "more": ""}
        done = await client.execute("echoing", {"text": CANARY, "more": CANARY * 40_000}, wait=True)
        assert done.status == "completed", done.error
        assert done.output == {"text": CANARY, "more": CANARY * 40_000}
        return done.execution_id


async def test_what_people_send_is_encrypted_rekeyed_counted_and_removed(tmp_path: Path, agents_file: Path) -> None:
    home = tmp_path / "home"
    first, second = (af(home, "keys", "new", name).strip() for name in ("k1", "k2"))
    ring = {"AF_ENCRYPTION_KEYS": first}
    async with embedded_platform(home, agents_file=agents_file, extra_env=ring) as platform:
        execution = await run_echo(platform)

        assert files_with(CANARY, home) == []
        assert list((home / "artifacts" / "default" / execution).glob("*.zst"))
        both = {"AF_ENCRYPTION_KEYS": f"{second},{first}"}
        moved = json.loads(af(home, "keys", "rekey", "--json", **both))
        assert (moved["key"], moved["events"], moved["artifacts"]) == ("k2", 8, 1)
        assert json.loads(af(home, "db", "rekey", "--json", **both))["events"] == 0

    new = {"AF_ENCRYPTION_KEYS": second}
    async with (
        embedded_platform(home, agents_file=agents_file, extra_env=new) as platform,
        Client(platform.api_url, api_key=platform.api_key) as client,
    ):
        shown = await client.execution(execution)
        assert shown.output["more"] == CANARY * 40_000

        uses = json.loads(af(home, "storage", "report", "--json", **new))["uses"]
        assert {(use["tenant"], use["workflow"], use["kind"]) for use in uses} >= {
            ("default", "echoing", "history"), ("default", "echoing", "artifact"), ("default", "", "registered"),
        }  # fmt: skip
        assert "echoing" in af(home, "storage", "report", **new)

        assert "Nothing would be removed" in af(home, "retention", "plan", "--dry-run", **new)
        soon = {**new, "AF_RETENTION": "history=0d"}
        plan = json.loads(af(home, "retention", "plan", "--dry-run", "--json", **soon))
        done = json.loads(af(home, "retention", "run", "--json", **soon))
        assert execution in plan["removals"][0]["ids"]
        assert [removal["ids"] for removal in done["removals"]] == [removal["ids"] for removal in plan["removals"]]
        assert [item.id for item in (await client.executions()).items] == []
        assert not list((home / "artifacts").rglob("*.zst"))


async def test_without_keys_the_same_search_finds_it(tmp_path: Path, agents_file: Path) -> None:
    async with embedded_platform(tmp_path / "home", agents_file=agents_file) as platform:
        await run_echo(platform)

        assert {Path(name).suffix for name in files_with(CANARY, tmp_path / "home")} >= {".db-wal", ".zst"}


async def test_heartbeats_write_no_rows(tmp_path: Path, agents_file: Path) -> None:
    home = tmp_path / "home"
    async with (
        embedded_platform(home, agents_file=agents_file) as platform,
        Client(platform.api_url, api_key=platform.api_key) as client,
    ):
        before = counts(home / "agentflow.db")
        async with jetstream(platform.nats_url, name="test", replicas=1) as bus:
            for number in range(200):
                beat = Heartbeat(WorkerId("wrk_test"), {"beating": number}, 1, 2**53)
                await bus.broadcast(subjects.of_pool(subjects.HEARTBEATS, "default"), msgspec.json.encode(beat))

            async def heard() -> bool:
                listed = msgspec.json.decode((await client._send("GET", "/agents")).content)["items"]
                return any(agent["name"] == "beating" for agent in listed)

            await eventually(heard)
        assert counts(home / "agentflow.db") == before


def counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
