"""`python -m worker` as people run it: a real process, a real NATS, agents from a file."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.message import seal
from agentflow.contracts.step import CancelSteps, StepRequest, StepResult
from agentflow.ids import UlidSource
from agentflow.settings import inherited_environment
from agentflow.testing import eventually

AGENTS = """apiVersion: agentflow/v1
kind: Agents
agents:
  greeter: {type: function, call: "town:greet"}
  gate: {type: function, call: "town:wait_for_file", concurrency: 2}
tools:
  town.count: {type: function, call: "town_tools:count"}
  town.sleep: {type: function, call: "town_tools:sleep", timeout: 600s}
"""
MODULE = """
import asyncio
from pathlib import Path


async def greet(input, context):
    return {"hello": input["name"], "key": context.effect_key}


async def wait_for_file(input):
    Path(input["began"]).touch()
    while not Path(input["until"]).exists():
        await asyncio.sleep(0.01)
    return "through"
"""
TOOLS = """
import os
import time


def count(input):
    return {"words": len(input["text"].split()), "environment": dict(os.environ)}


def sleep(input):
    time.sleep(300)
"""


class Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def event(self, name: str) -> dict:
        """Read the log up to an event."""
        async with asyncio.timeout(20):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if line.startswith("{") and json.loads(line)["event"] == name:
                    return json.loads(line)
        raise AssertionError(f"the worker ended without {name}: {''.join(self.lines)}")

    async def end(self) -> int:
        async with asyncio.timeout(20):
            self.lines += (await self.process.stderr.read()).decode().splitlines(keepends=True)
            return await self.process.wait()


@asynccontextmanager
async def worker(**settings: str) -> AsyncIterator[Worker]:
    if "AF_AGENTS_FILE" in settings:
        settings = {"AF_HOME": str(Path(settings["AF_AGENTS_FILE"]).parent / "home")} | settings
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker"),
        env=inherited_environment() | {"AF_LOG_FORMAT": "json", "AF_CONFIG_FILE": "/dev/null"} | settings,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Worker(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.end()


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    (tmp_path / "town.py").write_text(MODULE)
    (tmp_path / "town_tools.py").write_text(TOOLS)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    return tmp_path / "agents.yaml"


@pytest.fixture
async def bus(nats):
    async with jetstream(nats.url, name="test") as bus:
        yield bus


@pytest.fixture
def send(bus):
    clock = SystemClock()
    ids = UlidSource(clock.now_ms)

    async def published(agent: str, path: str, input, *, tool: str | None = None) -> None:
        request = StepRequest("exec_1", "town", 0, path, path, 1, input, 30_000, f"default/exec_1/{path}", tool)
        message = seal(
            id=ids.message(),
            trace_id=ids.trace(),
            span_id="00f067aa0ba902b7",
            sender="orchestrator",
            to=agent,
            type="request",
            payload=msgspec.to_builtins(request),
            metadata={"execution_id": "exec_1"},
            at_ms=clock.now_ms(),
        )
        await bus.publish(subjects.agent_in("default", agent), message, dedup_id=path, confirm=True)

    return published


@pytest.fixture
def results(bus):
    async def read() -> dict[str, StepResult]:
        found = [message.read(StepResult) async for message in bus.replay(subjects.MESSAGES)]
        assert len({result.path for result in found}) == len(found)
        return {result.path: result for result in found}

    return read


async def test_a_worker_hosts_functions_and_tools_and_stops_when_asked(nats, agents_file, send, results):
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        ready = await running.event("worker.ready")
        assert ready["agents"] == ["gate", "greeter", "tools"]

        await send("greeter", "hi", {"name": "Ada"})
        await send("tools", "count", {"text": "three short words"}, tool="town.count")
        await send("tools", "unknown", {}, tool="town.missing")
        done = await eventually(lambda: three_of(results), within_s=10)
        running.process.send_signal(signal.SIGTERM)

        assert await running.end() == 0

    assert done["hi"].output == {"hello": "Ada", "key": "default/exec_1/hi"}
    assert done["count"].output == {"words": 3, "environment": {"HOME": "/sandbox"}}
    assert done["unknown"].fault.code == "tool_unknown"
    assert done["hi"].worker == ready["worker"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_steps_finish_and_takes_no_new_ones(
    nats, agents_file, send, results, tmp_path, number
):
    began, until = tmp_path / "began", tmp_path / "until"
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        await running.event("worker.ready")
        await send("gate", "running", {"began": str(began), "until": str(until)})
        await eventually(began.exists)

        running.process.send_signal(number)
        assert (await running.event("worker.draining"))["running"] == 1
        until.touch()

        assert await running.end() == 0
        assert "worker.stopped" in running.lines[-1]

    assert (await results())["running"].output == "through"


async def test_a_second_signal_stops_at_once_and_reports_the_step_as_ended_with_the_worker(
    nats, agents_file, send, results, tmp_path
):
    began, until = tmp_path / "began", tmp_path / "until"
    settings = {"AF_NATS_URL": nats.url, "AF_AGENTS_FILE": str(agents_file)}
    async with worker(**settings) as running:
        await running.event("worker.ready")
        await send("gate", "step", {"began": str(began), "until": str(until)})
        await eventually(began.exists)

        running.process.send_signal(signal.SIGTERM)
        await running.event("worker.draining")
        running.process.send_signal(signal.SIGTERM)

        assert (await running.event("worker.gave_back"))["steps"] == 1
        assert await running.end() == 0

    assert (await results())["step"].fault.code == "worker_stopped"


async def test_a_killed_workers_step_is_found_lost_by_the_next_one_which_does_not_run_it(
    nats, agents_file, send, results, tmp_path
):
    began, until = tmp_path / "began", tmp_path / "until"
    settings = {"AF_NATS_URL": nats.url, "AF_AGENTS_FILE": str(agents_file), "AF_ACK_WAIT_S": "1"}
    async with worker(**settings) as running:
        await running.event("worker.ready")
        await send("gate", "step", {"began": str(began), "until": str(until)})
        await eventually(began.exists)
        running.process.kill()
        await running.end()

    began.unlink()
    async with worker(**settings) as running:
        done = await eventually(results, within_s=10)

    assert done["step"].fault.code == "worker_lost"
    assert not began.exists()


async def test_what_finished_while_the_bus_was_away_is_sent_by_the_next_worker_and_not_run_again(
    nats, agents_file, send, results, tmp_path
):
    began, until = tmp_path / "began", tmp_path / "until"
    spooled = tmp_path / "home" / "spool" / "results-0.log"
    settings = {"AF_NATS_URL": nats.url, "AF_AGENTS_FILE": str(agents_file), "AF_ACK_WAIT_S": "1"}
    async with worker(**settings) as running:
        await running.event("worker.ready")
        await send("gate", "step", {"began": str(began), "until": str(until)})
        await eventually(began.exists)
        nats.process.kill()
        until.touch()
        await eventually(lambda: spooled.exists() and spooled.stat().st_size > 0, within_s=10)
        running.process.kill()
        await running.end()

    began.unlink()
    await nats.restart()
    async with worker(**settings) as running:
        assert (await running.event("spool.resending"))["results"] == 1
        done = await eventually(results, within_s=10)
        assert done["step"].output == "through"
        await eventually(lambda: spooled.stat().st_size == 0, within_s=10)
        await send("greeter", "hi", {"name": "Ada"})
        await eventually(lambda: both_of(results), within_s=10)

    assert not began.exists(), "it came again after its ack wait, and was known"


async def test_a_cancellation_reaches_async_code_and_ends_the_processes_of_a_tool(
    nats, bus, agents_file, send, results, tmp_path
):
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        await running.event("worker.ready")
        before = len(psutil.Process(running.process.pid).children(recursive=True))
        await send("gate", "waiting", {"began": str(tmp_path / "began"), "until": str(tmp_path / "never")})
        await send("tools", "sleeping", {}, tool="town.sleep")
        await eventually((tmp_path / "began").exists)
        await eventually(lambda: len(psutil.Process(running.process.pid).children(recursive=True)) > before)

        await bus.broadcast(
            subjects.of_pool(subjects.WORKER_CONTROL, "default"), msgspec.json.encode(CancelSteps("exec_1"))
        )

        done = await eventually(lambda: both_of(results), within_s=10)
        assert {name: result.fault.code for name, result in done.items()} == {
            "waiting": "cancelled",
            "sleeping": "cancelled",
        }
        await eventually(lambda: len(psutil.Process(running.process.pid).children(recursive=True)) == before)


async def test_agents_that_cannot_be_imported_fail_their_own_steps_and_say_why_and_the_worker_works_on(
    nats, agents_file, send, results
):
    (agents_file.parent / "sick.py").write_text("import json\nimport no_such_package_here\n")
    agents_file.write_text(AGENTS.replace("agents:", 'agents:\n  sick: {type: function, call: "sick:f"}'))
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        await running.event("worker.ready")
        await send("sick", "sick", {})
        await send("greeter", "hi", {"name": "Ada"})
        done = await eventually(lambda: both_of(results), within_s=10)

    assert done["hi"].output["hello"] == "Ada"
    assert done["sick"].fault.code == "agent_not_importable"
    assert "no_such_package_here" in done["sick"].fault.message
    assert "sick.py:2" in done["sick"].fault.message
    assert str(agents_file.parent) not in done["sick"].fault.message, "no folder of this machine"


HEAVY = """
import importlib.metadata
import sys
import builtins
import pydantic
import sqlalchemy
import cryptography.fernet


class Order(pydantic.BaseModel):
    lines: list[int]


def weigh(input):
    order = Order.model_validate(input)
    return {
        "total": sum(order.lines),
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "import": builtins.__import__.__module__ + "." + builtins.__import__.__name__,
    }
"""


async def test_an_agent_imports_what_it_likes_as_any_program_would_and_no_import_hook_is_installed(
    nats, agents_file, send, results
):
    (agents_file.parent / "heavy.py").write_text(HEAVY)
    agents_file.write_text(AGENTS.replace("agents:", 'agents:\n  heavy: {type: function, call: "heavy:weigh"}'))
    plain = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import heavy, json; print(json.dumps(heavy.weigh({'lines': [1, 2]})))"),
        cwd=agents_file.parent,
        stdout=asyncio.subprocess.PIPE,
    )
    without_us = json.loads((await plain.communicate())[0])
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        await running.event("worker.ready")
        await send("heavy", "weigh", {"lines": [1, 2]})
        done = await eventually(results, within_s=10)

    assert done["weigh"].output == without_us


async def test_health_pages_say_that_a_worker_lives_and_whether_it_takes_steps(nats, agents_file):
    async with worker(AF_NATS_URL=nats.url, AF_AGENTS_FILE=str(agents_file)) as running:
        address = (await running.event("worker.health"))["address"]
        await running.event("worker.ready")
        async with httpx.AsyncClient() as client:
            alive, ready = await client.get(f"{address}/livez"), await client.get(f"{address}/readyz")
            assert (alive.status_code, ready.status_code) == (200, 200)
            assert ready.json()["checks"] == {"bus": True, "taking_steps": True}
            assert (await client.get(f"{address}/else")).status_code == 404
            assert (await client.post(f"{address}/readyz")).status_code == 405

            nats.process.kill()
            await eventually(lambda: is_status(client, f"{address}/readyz", 503), within_s=10)
            assert (await client.get(f"{address}/livez")).status_code == 200


async def is_status(client, url, status):
    return (await client.get(url)).status_code == status


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        (None, "AF1302", "no agents to host"),
        ("kind: Agents", "AF1301", "1:1"),
        ("apiVersion: agentflow/v1\nkind: Agents\n", "AF1302", "AF_AGENTS_FILE"),
        (AGENTS.replace('"town_tools:count"', '"town_tools:count", permissions: [network]'), "AF1402", "network"),
    ],
    ids=["none", "broken", "empty", "permission"],
)
async def test_what_must_be_corrected_is_one_readable_message_and_exit_code_2(agents_file, file, code, words):
    settings = {}
    if file is not None:
        agents_file.write_text(file)
        settings["AF_AGENTS_FILE"] = str(agents_file)
    async with worker(**settings) as running:
        assert await running.end() == 2

    told = "".join(running.lines)
    assert f"error[{code}]" in told
    assert words in told
    assert "Traceback" not in told


async def test_a_bus_that_is_away_is_exit_code_3_and_no_trace(agents_file, unused_tcp_port):
    async with worker(
        AF_NATS_URL=f"nats://127.0.0.1:{unused_tcp_port}", AF_AGENTS_FILE=str(agents_file)
    ) as running:  # fmt: skip
        assert await running.end() == 3

    told = "".join(running.lines)
    assert "AF_NATS_URL" in told
    assert "Traceback" not in told


async def both_of(results):
    found = await results()
    return found if len(found) == 2 else None


async def three_of(results):
    found = await results()
    return found if len(found) == 3 else None
