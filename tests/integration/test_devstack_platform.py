"""The embedded platform: three children in order, kept alive on their ports, alone in their home.

NATS is the real one; the two services are small stand-ins that keep the contract `devstack` relies on (their
variables, their ready line, SIGTERM), so that what is tested here is the supervision and nothing else.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest

from agentflow.devstack.home import HomeInUse, locked_home
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.devstack.process import ChildProcess, ServerDidNotStart
from agentflow.devstack.supervision import Exit, supervised
from agentflow.testing import eventually

CONTROL_PLANE = """
import json, os, signal, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

story = Path(os.environ["AF_HOME"]) / "story"
host, port = os.environ["AF_HTTP_LISTEN"].split(":")
Path(os.environ["AF_BOOTSTRAP_FILE"]).write_text("afk_test\\n")

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({k: v for k, v in os.environ.items() if k.startswith("AF_")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def end(*_):
    with story.open("a") as out: out.write("control plane stopped\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
server = HTTPServer((host, int(port)), Answer)
url = f"http://{host}:{server.server_port}"
print(json.dumps({"http": url, "event": "control_plane.ready", "level": "info"}), file=sys.stderr, flush=True)
server.serve_forever()
"""

WORKER = """
import json, os, signal, sys
from pathlib import Path

def end(*_):
    with (Path(os.environ["AF_HOME"]) / "story").open("a") as out: out.write("worker drained\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
if "BROKEN_WORKER" in os.environ:
    sys.exit("no agents in the agents file")
print(json.dumps({"event": "worker.ready", "worker": "w", "agents": []}), file=sys.stderr, flush=True)
while True:
    signal.pause()
"""

GATED = """
import os, signal, sys
if not os.path.exists(sys.argv[1]):
    sys.exit("the gate is shut")
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def _stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m control_plane` finds what lies in the working directory first."""
    (tmp_path / "control_plane.py").write_text(CONTROL_PLANE)
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def exits() -> list[Exit]:
    return []


@pytest.fixture
async def platform(tmp_path: Path, exits: list[Exit]) -> AsyncIterator[EmbeddedPlatform]:
    agents = Path("agents.yaml")
    async with embedded_platform(
        tmp_path / "home", agents_file=agents, extra_env={"AF_SHARDS": "4"}, on_exit=exits.append
    ) as platform:
        yield platform


async def _answers(url: str) -> dict[str, str] | None:
    async with httpx.AsyncClient(trust_env=False) as client:
        try:
            answer: dict[str, str] = (await client.get(url)).json()
        except httpx.TransportError:
            return None
    return answer


async def test_the_services_are_told_where_to_meet_and_where_to_live(
    platform: EmbeddedPlatform, tmp_path: Path
) -> None:
    told = await _answers(platform.api_url)
    assert told is not None
    assert told.pop("AF_NATS_URL") == platform.nats_url
    assert told == {
        "AF_AGENTS_FILE": "agents.yaml",
        "AF_BOOTSTRAP_FILE": str(tmp_path / "home" / "admin.key"),
        "AF_DRAIN_S": "10",
        "AF_GRPC_LISTEN": "127.0.0.1:0",
        "AF_HOME": str(tmp_path / "home"),
        "AF_HTTP_LISTEN": "127.0.0.1:0",
        "AF_LOG_FORMAT": "json",
        "AF_MODE": "dev",
        "AF_SHARDS": "4",
    }


async def test_the_output_of_each_child_is_in_its_own_log(platform: EmbeddedPlatform, tmp_path: Path) -> None:
    logs = tmp_path / "home" / "logs"
    assert json.loads((logs / "control-plane.log").read_text())["http"] == platform.api_url
    assert json.loads((logs / "worker.log").read_text())["event"] == "worker.ready"
    assert "Server is ready" in (logs / "nats.log").read_text()


@pytest.mark.parametrize("victim", ["nats", "control_plane", "worker"])
async def test_a_killed_child_comes_back_and_its_end_is_told(
    platform: EmbeddedPlatform, exits: list[Exit], victim: str
) -> None:
    child = getattr(platform, victim)
    first = child.pid

    child.kill()

    await eventually(lambda: child.pid != first, within_s=10)
    assert psutil.pid_exists(child.pid)
    assert [(told.name, told.reason) for told in exits] == [(child.name, "ended with exit code 137")]


async def test_a_control_plane_that_comes_back_is_at_the_same_address(platform: EmbeddedPlatform) -> None:
    first = platform.control_plane.pid
    platform.control_plane.kill()
    await eventually(lambda: platform.control_plane.pid != first, within_s=10)
    assert await _answers(platform.api_url)


async def test_nats_comes_back_at_the_same_address(platform: EmbeddedPlatform) -> None:
    first = platform.nats.pid
    platform.nats.kill()
    await eventually(lambda: platform.nats.pid != first, within_s=10)
    assert platform.nats_url.endswith(f":{platform.nats.process.ready_match[1]}")


async def test_the_worker_drains_before_the_control_plane_stops_and_nobody_is_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with embedded_platform(home, agents_file=None) as platform:
        pids = [platform.nats.pid, platform.control_plane.pid, platform.worker.pid]
    assert (home / "story").read_text().splitlines() == ["worker drained", "control plane stopped"]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_when_one_child_cannot_start_the_others_are_stopped_and_its_log_is_shown(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(ServerDidNotStart, match="no agents in the agents file"):
        async with embedded_platform(tmp_path / "home", agents_file=None, extra_env={"BROKEN_WORKER": "1"}):
            pass
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert (tmp_path / "home" / "story").read_text() == "control plane stopped\n"


async def test_a_second_platform_in_the_same_home_is_refused(platform: EmbeddedPlatform, tmp_path: Path) -> None:
    with pytest.raises(HomeInUse, match=f"process {os.getpid()}") as caught:
        async with embedded_platform(tmp_path / "home", agents_file=None):
            pass
    assert "AF_HOME" in caught.value.hint


async def test_a_home_stays_locked_until_the_last_child_of_a_dead_owner_is_gone(tmp_path: Path) -> None:
    with locked_home(tmp_path / "home") as home:
        child = await ChildProcess.start(
            "straggler",
            [sys.executable, "-c", "import signal; signal.pause()"],
            log=home.log_of("straggler"),
            held=(home.lock,),
        )
    with pytest.raises(HomeInUse), locked_home(tmp_path / "home"):
        pass
    await child.stop()
    with locked_home(tmp_path / "home"):
        pass


async def test_a_child_that_cannot_come_back_is_tried_again_later_and_later(tmp_path: Path) -> None:
    exits: list[Exit] = []
    gate = tmp_path / "gate"
    gate.touch()

    async def start() -> ChildProcess:
        return await ChildProcess.start(
            "gated", [sys.executable, "-c", GATED, str(gate)], log=tmp_path / "gated.log", ready=re.compile("ready")
        )

    async with supervised(start, exits.append) as child:
        first = child.pid
        gate.unlink()
        child.kill()
        await eventually(lambda: len(exits) >= 3, within_s=10)
        gate.touch()
        await eventually(lambda: child.pid != first, within_s=10)

    assert [told.restart_in_s for told in exits[:3]] == [0.1, 0.2, 0.4]
    assert "the gate is shut" in exits[1].reason
    assert not psutil.pid_exists(child.pid)


async def test_a_child_that_is_stopped_in_the_middle_of_a_restart_is_not_left_behind(tmp_path: Path) -> None:
    starts: list[ChildProcess] = []
    restarting = asyncio.Event()

    async def start() -> ChildProcess:
        child = await ChildProcess.start(
            "plain", [sys.executable, "-c", "import signal; signal.pause()"], log=tmp_path / "plain.log"
        )
        starts.append(child)
        return child

    async with supervised(start, lambda _: restarting.set()) as child:
        child.kill()
        await restarting.wait()

    assert [process for process in starts if process.exit_code is None] == []


async def test_an_error_in_the_callback_is_not_lost(tmp_path: Path) -> None:
    called = asyncio.Event()

    def broken(_: Exit) -> None:
        called.set()
        raise RuntimeError("cannot print")

    async def start() -> ChildProcess:
        argv = [sys.executable, "-c", "import signal; signal.pause()"]
        return await ChildProcess.start("plain", argv, log=tmp_path / "plain.log")

    async def supervise() -> None:
        async with supervised(start, broken) as child:
            child.kill()
            await called.wait()

    with pytest.raises(RuntimeError, match="cannot print"):
        await supervise()
