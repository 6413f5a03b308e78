"""Two real control planes on one PostgreSQL: one is killed, one is stopped past its lease, and no execution notices."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import websockets

from agentflow.devstack.process import ChildProcess
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from agentflow.testing import eventually

READY = re.compile(r'^(?=.*"event":\s*"control_plane\.ready").*"http":\s*"(?P<url>[^"]+)', re.MULTILINE)
LEASE_S = "2"


@asynccontextmanager
async def second_control_plane(here, dsn: str, folder: Path) -> AsyncIterator[tuple[ChildProcess, Client]]:
    environment = {
        **inherited_environment(),
        "AF_HOME": str(folder / "second"),
        "AF_DB_DSN": dsn,
        "AF_NATS_URL": here.platform.nats_url,
        "AF_HTTP_LISTEN": "127.0.0.1:0",
        "AF_GRPC_LISTEN": "127.0.0.1:0",
        "AF_LEASE_S": LEASE_S,
        "AF_RESEND_AFTER_S": "1",
        "AF_ARTIFACTS_URL": f"file://{folder / 'home' / 'artifacts'}",
        "AF_LOG_FORMAT": "json",
    }
    process = await ChildProcess.start(
        "second-control-plane",
        [sys.executable, "-m", "control_plane"],
        log=folder / "second.log",
        env=environment,
        ready=READY,
        ready_within_s=30,
    )
    try:
        assert process.ready_match is not None
        async with Client(process.ready_match["url"], api_key=here.platform.api_key) as client:
            yield process, client
    finally:
        await process.stop()


def shards_of(log: Path) -> int:
    """How many shards the second one holds, by its own words."""
    said = re.findall(r'"held":\s*(\d+).*"event":\s*"shards\.(?:gained|lost)"', log.read_text())
    return int(said[-1]) if said else 0


async def test_a_killed_replicas_executions_are_finished_by_the_other(world, postgres_dsn, tmp_path, each_outcome_once):
    async with (
        world(AF_DB_DSN=postgres_dsn, AF_LEASE_S=LEASE_S) as here,
        second_control_plane(here, postgres_dsn, tmp_path) as (second, client),
    ):
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=20)
        started = [await one.execute("breakable", {"n": 1}) for one in (here.client, client) for _ in range(4)]
        await eventually(lambda: sum(run[1] == "patient" for run in here.all_runs()) == 8, within_s=20)

        second.kill()
        here.let_go()

        for execution in started:
            each_outcome_once([event async for event in here.client.follow(execution.execution_id)])


async def test_a_replica_that_wakes_up_past_its_lease_records_nothing(world, postgres_dsn, tmp_path, each_outcome_once):
    async with (
        world(AF_DB_DSN=postgres_dsn, AF_LEASE_S=LEASE_S) as here,
        second_control_plane(here, postgres_dsn, tmp_path) as (second, client),
    ):
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=20)
        started = [await client.execute("breakable", {"n": 1}) for _ in range(4)]
        await eventually(lambda: sum(run[1] == "patient" for run in here.all_runs()) == 4, within_s=20)

        os.kill(second.pid, signal.SIGSTOP)
        here.let_go()
        for execution in started:
            each_outcome_once([event async for event in here.client.follow(execution.execution_id)])
        os.kill(second.pid, signal.SIGCONT)

        # It comes back, finds out that it owns nothing any more, and gets its share again.
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=30)
        after = await client.execute("breakable", {"n": 1}, wait=True)
        assert after.status == "completed"
        for execution in started:
            each_outcome_once(await here.client.history(execution.execution_id))


async def test_a_watcher_on_one_replica_sees_what_another_one_commits(world, postgres_dsn, tmp_path):
    async with (
        world(AF_DB_DSN=postgres_dsn, AF_LEASE_S=LEASE_S) as here,
        second_control_plane(here, postgres_dsn, tmp_path) as (_, client),
        websockets.connect(
            client.api_url.replace("http://", "ws://") + "/api/v1/ws",
            proxy=None,
            additional_headers={"Authorization": f"Bearer {here.platform.api_key}"},
        ) as socket,
    ):
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=20)
        await socket.send(json.dumps({"type": "subscribe", "after": 0}))
        here.let_go()
        started = [(await here.client.execute("breakable", {"n": n}, wait=True)).execution_id for n in range(3)]
        expected = {one: [event.version for event in await client.history(one)] for one in started}

        seen: dict[str, list[int]] = {}
        async with asyncio.timeout(20):
            while seen != expected:
                message = json.loads(await socket.recv())
                if message["type"] == "event":
                    seen.setdefault(message["event"]["execution_id"], []).append(message["event"]["version"])


LISTENS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: listens, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hears
    final_states: [done]
    states:
      hears: {wait: {signal: go}, timeout: 5m, on_success: done}
      done: {succeed: {heard: "${steps.hears.output}", given: "${input.text}"}}
"""


async def test_what_is_too_large_for_a_message_reaches_the_replica_that_owns_it(world, postgres_dsn, tmp_path):
    async with (
        world(AF_DB_DSN=postgres_dsn, AF_LEASE_S=LEASE_S) as here,
        second_control_plane(here, postgres_dsn, tmp_path) as (_, client),
    ):
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=20)
        await here.client.push_workflow(LISTENS)
        given, heard = "i" * 2_000_000, "s" * 3_000_000
        for number in range(3):
            # A keyed start is made again by the other one, and a signal sent through both: one of them has to ask.
            started = [
                await one.execute("listens", {"text": given}, key=f"large-{number}") for one in (here.client, client)
            ]
            assert started[0].execution_id == started[1].execution_id
            other = client if number % 2 else here.client
            await other.signal(started[0].execution_id, "go", heard)
            ended = [event async for event in here.client.follow(started[0].execution_id)][-1]
            assert ended.type == "execution.completed.v1"
            assert ended.data["output"] == {"heard": heard, "given": given}
