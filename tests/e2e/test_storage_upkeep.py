"""Keys, retention and the report through the real platform and the real `af`: what an operator does, step by step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import func, select

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.contracts.step import Heartbeat
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.ids import ExecutionId, WorkerId
from agentflow.sdk.client import Client
from agentflow.testing import eventually
from control_plane.storage.database import Database, database
from control_plane.storage.tables import metadata

ROOT = Path(__file__).parents[2]
CANARY = "canary-49b1e0"
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  echo: {type: function, call: "echo_agents:echo"}
  talker: {type: function, call: "echo_agents:talker"}
"""
CODE = """
import time
from pathlib import Path

def echo(input):
    return input

def talker(input, context):
    with open(input["text"], "a") as calls:
        calls.write("called ")
    while not Path(input["more"]).exists() and not context.cancelled:
        print("token")
        time.sleep(0.05)
    context.spent("a-model", dollars="0.001", output=1)
    return {}
"""
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


async def test_what_workers_say_beside_results_adds_no_row_to_any_table(
    database_dsn: str, tmp_path: Path, agents_file: Path
) -> None:
    """A step that takes its time, as one that streams tokens does: it is alive, has more time, has spent, prints."""
    go, calls = tmp_path / "go", tmp_path / "calls"
    extra = {"AF_DB_DSN": database_dsn, "AF_ACK_WAIT_S": "1"}
    async with (
        embedded_platform(tmp_path / "home", agents_file=agents_file, extra_env=extra) as platform,
        Client(platform.api_url, api_key=platform.api_key) as client,
        jetstream(platform.nats_url, name="test", replicas=1) as bus,
        database(database_dsn) as db,
    ):
        beats, signs = list[Heartbeat](), list[bytes]()
        await bus.listen(
            subjects.of_pool(subjects.HEARTBEATS, "default"),
            lambda said: beats.append(msgspec.json.decode(said, type=Heartbeat)),
        )
        await bus.listen(f"$JS.ACK.{subjects.AGENTS}.>", signs.append)
        await client.push_workflow(WORKFLOW.replace("echo,", "talker,"))
        started = await client.execute("echoing", {"text": str(calls), "more": str(go)})
        await eventually(lambda: any(beat.steps for beat in beats))
        await eventually(lambda: _is_audited(db))
        before = await counts(db)
        beats.clear()
        signs.clear()
        for number in range(200):
            beat = Heartbeat(WorkerId("wrk_test"), {"beating": number}, 1, 2**53)
            await bus.broadcast(subjects.of_pool(subjects.HEARTBEATS, "default"), msgspec.json.encode(beat))

        await eventually(lambda: sum(bool(beat.steps) for beat in beats) >= 4, within_s=30)
        await eventually(lambda: signs.count(b"+WPI") >= 4, within_s=30)
        while_it_ran = await counts(db)
        go.touch()
        await eventually(lambda: _has_ended(client, started.execution_id), within_s=30)

        assert while_it_ran == before
        assert calls.read_text() == "called "  # so that it was one step that lasted
        grown = {name for name, rows in (await counts(db)).items() if rows > before[name]}
        assert grown == {"event_store", "cost_observations"}


async def _has_ended(client: Client, execution: ExecutionId) -> bool:
    return (await client.execution(execution)).status == "completed"


async def _is_audited(db: Database) -> bool:
    return (await counts(db))["audit_pending"] == 0


async def counts(db: Database) -> dict[str, int]:
    async with db.system_read() as connection:
        return {
            table.name: await connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }
