"""Real worker processes that are killed, stopped and poisoned, beside a real control plane and a real NATS."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from agentflow import limits
from agentflow.bus.subjects import direct_results
from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, opened
from agentflow.settings import inherited_environment
from agentflow.testing import eventually

AGENTS = """
import asyncio
import os
import signal
from pathlib import Path

HERE = Path(__file__).parent


def _note(name, context):
    with (HERE / "ran.log").open("a") as log:
        log.write(f"{context.execution_id} {name} {context.attempt} {context.effect_key} {os.getpid()}\\n")


async def quick(input, context):
    _note("quick", context)
    return {"n": input.get("n", 0) + 1}


async def patient(input, context):
    _note("patient", context)
    while not (HERE / "go").exists() and not (HERE / f"go-{context.attempt}").exists():
        await asyncio.sleep(0.02)
    return {"n": input["n"] + 1, "pid": os.getpid()}


async def brief(input, context):
    _note("brief", context)
    await asyncio.sleep(0.2)


async def poison(input, context):
    _note("poison", context)
    os.kill(os.getpid(), signal.SIGKILL)


async def effect(input, context):
    _note("effect", context)
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": 1}


async def remember(input, context):
    context.state["seen"] = context.state.get("seen", 0) + 1
    return {"seen": context.state["seen"], "pid": os.getpid()}
"""

AGENTS_FILE = """
apiVersion: agentflow/v1
kind: Agents
agents:
  quick: {type: function, call: "breakable:quick"}
  patient: {type: function, call: "breakable:patient"}
  single: {type: function, call: "breakable:patient", concurrency: 1}
  brief: {type: function, call: "breakable:brief", concurrency: 2}
  poison: {type: function, call: "breakable:poison"}
  effect: {type: function, call: "breakable:effect"}
  remember: {type: function, call: "breakable:remember", state: {key: customer}}
"""


def one_step(agent: str, *, input: str = "{}") -> str:
    return f"""
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: {agent}-once, version: 1.0.0}}
spec:
  planner: fsm
  fsm:
    initial_state: only
    final_states: [only]
    states:
      only: {{agent: {agent}, input: {input}, timeout: 60s}}
"""


@asynccontextmanager
async def another_worker(here, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    settings = {
        "AF_NATS_URL": here.platform.nats_url,
        "AF_AGENTS_FILE": str(here.folder / "agents.yaml"),
        "AF_HOME": str(here.folder / "other-home"),
        "AF_CONFIG_FILE": os.devnull,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker"),
        env=inherited_environment() | settings | environment,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def workers_world(world, tmp_path: Path):
    (tmp_path / "breakable.py").write_text(AGENTS)
    (tmp_path / "agents.yaml").write_text(AGENTS_FILE)
    return world


async def ended(here, execution):
    return [event async for event in here.client.follow(execution)]


# Of a machine that other tests use as well, between the moment that a step is free and the moment that it runs.
ALLOWANCE_S = 0.5
CALM_S = 5.0
# Until a worker is missed, what it did not come to say too.
MISSED_S = 2 * limits.HEARTBEAT_S + 1.5 * limits.HEARTBEAT_S + 1.0


async def test_a_killed_workers_step_is_with_another_within_two_heartbeats_whatever_the_ack_wait(workers_world):
    """UA-13 c."""
    async with workers_world(AF_ACK_WAIT_S="300") as here, another_worker(here):
        started = await held_step(here, workers=2)

        os.kill(int(here.all_runs()[0][-1]), signal.SIGKILL)
        killed_at_s = time.monotonic()

        await eventually(lambda: here.runs(started.execution_id)["patient"] == 2, within_s=10)
        assert time.monotonic() - killed_at_s < 2 * limits.HEARTBEAT_S + ALLOWANCE_S
        here.let_go()
        events = await ended(here, started.execution_id)
        assert [event.data["fault"]["code"] for event in events if event.type == "step.failed.v1"] == ["worker_lost"]
        assert events[-1].type == "execution.completed.v1"


async def test_the_room_that_a_killed_worker_took_up_is_free_as_soon_as_its_step_is(workers_world):
    """UA-13 c: what it never acked does not keep an agent that may do one step at a time from doing any."""
    async with workers_world(AF_ACK_WAIT_S="300") as here, another_worker(here):
        await here.client.push_workflow(one_step("single", input="{n: 1}"))
        await eventually(lambda: is_listed(here, "single", workers=2, running=0), within_s=20)
        started = await here.client.execute("single-once", {})
        await eventually(lambda: is_listed(here, "single", workers=2), within_s=10)

        os.kill(int(here.all_runs()[0][-1]), signal.SIGKILL)
        here.let_go()

        events = await asyncio.wait_for(ended(here, started.execution_id), 10)
        assert events[-1].type == "execution.completed.v1"


async def test_a_worker_that_stands_still_is_given_all_of_its_time(workers_world):
    """Its connection is there, so it may only be slow. Its last beat may be a heartbeat older than its standstill."""
    async with workers_world(AF_WORKER_LOST_S="3.5", AF_ACK_WAIT_S="300") as here, another_worker(here):
        started = await held_step(here, workers=2)
        still = int(here.all_runs()[0][-1])

        os.kill(still, signal.SIGSTOP)
        stopped_at_s = time.monotonic()
        try:
            await eventually(lambda: here.runs(started.execution_id)["patient"] == 2, within_s=10)
            assert time.monotonic() - stopped_at_s > 3.5 - limits.HEARTBEAT_S
        finally:
            here.let_go()
            os.kill(still, signal.SIGCONT)


async def test_a_restart_of_nats_loses_nobody_and_who_dies_after_it_is_missed_as_soon_as_ever(workers_world):
    """Everybody's connection ends at once; who is back first must not take the others for dead."""
    async with workers_world(AF_ACK_WAIT_S="300", AF_WORKER_LOST_S="60") as here:
        started = await held_step(here, workers=1)
        async with another_worker(here) as idle:
            await eventually(lambda: is_listed(here, "patient", workers=2), within_s=10)

            os.kill(idle.pid, signal.SIGSTOP)  # so it comes back last
            here.platform.nats.kill()
            await eventually(lambda: has_ended(here, "quick"), within_s=20)
            stopped = await eventually(lambda: missed(here, "patient"), within_s=20)
            os.kill(idle.pid, signal.SIGCONT)
            await eventually(lambda: is_back(here, "patient", stopped), within_s=20)
            idle.kill()
            await eventually(lambda: is_listed(here, "patient", workers=1), within_s=10)

            here.let_go()
            events = await ended(here, started.execution_id)
        assert events[-1].type == "execution.completed.v1"
        assert here.runs(started.execution_id)["patient"] == 1
        assert "step.failed.v1" not in {event.type for event in events}


async def held_step(here, *, workers):
    """One that is with one of so many workers, and the control plane knows it."""
    await here.client.push_workflow(one_step("patient", input="{n: 1}"))
    await here.client.push_workflow(one_step("quick"))
    await eventually(lambda: is_listed(here, "patient", workers=workers, running=0), within_s=20)
    started = await here.client.execute("patient-once", {})
    await eventually(lambda: is_listed(here, "patient", workers=workers), within_s=10)
    return started


async def has_ended(here, agent):
    """Whether a step of this agent, asked for now, is done: the bus is there, and so is a worker."""
    await here.client.execute(f"{agent}-once", {}, wait=True)
    return True


async def test_a_worker_stopped_past_its_time_cannot_record_its_late_result(workers_world):
    """F-5."""
    async with workers_world(AF_WORKER_LOST_S="1.5", AF_ACK_WAIT_S="300") as here:
        await here.client.push_workflow(one_step("patient", input="{n: 1}"))
        started = await here.client.execute("patient-once", {})
        await eventually(lambda: here.runs(started.execution_id)["patient"] == 1, within_s=10)
        await eventually(lambda: is_listed(here, "patient"), within_s=10)
        stale = int(here.all_runs()[0][-1])

        os.kill(stale, signal.SIGSTOP)
        try:
            async with another_worker(here) as other, results_settled(here) as settled:
                await eventually(lambda: here.runs(started.execution_id)["patient"] == 2, within_s=20)
                (here.folder / "go-1").touch()  # the first attempt ends, and says so, while the second is at it
                os.kill(stale, signal.SIGCONT)
                late = (started.execution_id, 1)
                await eventually(lambda: late in settled, within_s=20)
                told = [event.type for event in await here.client.history(started.execution_id)]
                assert "step.succeeded.v1" not in told
                here.let_go()
                events = await ended(here, started.execution_id)
                (succeeded,) = [event for event in events if event.type == "step.succeeded.v1"]
                assert succeeded.data["attempt"] > 1
                assert succeeded.data["output"]["pid"] == other.pid
        finally:
            os.kill(stale, signal.SIGCONT)


@asynccontextmanager
async def results_settled(here) -> AsyncIterator[list[tuple[str, int]]]:
    """Execution and attempt of every result that a control plane is done with by its own answer, from now on."""
    handed: dict[str, list[tuple[str, int]]] = {}  # by where its answer goes
    settled: list[tuple[str, int]] = []

    async def heard(message: Msg) -> None:
        if message.subject.startswith(direct_results("")):
            told = [each.metadata for each in opened(message.data, ResultsHanded).results]
            handed[message.reply] = [(each["execution_id"], each["attempt"]) for each in told]
        elif message.subject in handed:
            refused = set(opened(message.data, ResultsTaken).refused)
            settled.extend(one for place, one in enumerate(handed[message.subject]) if place not in refused)

    listener = Client()
    await listener.connect(here.platform.nats_url)
    try:
        await listener.subscribe(">", cb=heard)
        await listener.flush()
        yield settled
    finally:
        await listener.close()


async def test_a_worker_killed_after_the_effect_runs_it_again_under_the_same_key(workers_world):
    """F-8."""
    async with workers_world(AF_WORKER_LOST_S="1.5") as here:
        await here.client.push_workflow(one_step("effect"))
        started = await here.client.execute("effect-once", {})

        events = await ended(here, started.execution_id)

        assert events[-1].type == "execution.completed.v1"
        runs = [line for line in here.all_runs() if line[1] == "effect"]
        assert [line[2] for line in runs] == ["1", "2"]
        assert len({line[3] for line in runs}) == 1, "the effect key is the same over all attempts"


async def test_a_step_that_kills_its_worker_every_time_fails_and_others_hardly_notice(workers_world):
    """F-10: with workers that are started again, as whoever runs them would do it."""
    async with workers_world(AF_ACK_WAIT_S="300") as here, started_again(here), started_again(here):
        for agent in ("poison", "brief"):
            await here.client.push_workflow(one_step(agent))
        await eventually(lambda: is_listed(here, "poison", workers=3, running=0), within_s=20)
        calm = await taken(here, asyncio.create_task(asyncio.sleep(CALM_S)))

        poisoned = await here.client.execute("poison-once", {})
        beside = await taken(here, asyncio.create_task(ended(here, poisoned.execution_id)))

        events = await ended(here, poisoned.execution_id)
        assert events[-1].type == "execution.failed.v1"
        assert events[-1].data["fault"]["code"] == "worker_lost"
        lost = [event for event in events if event.type == "step.failed.v1"]
        assert len(lost) == 6
        assert len([line for line in here.all_runs() if line[1] == "poison"]) <= len(lost)
        shared_its_fate = {execution for execution, _, attempt, *_ in here.all_runs() if attempt != "1"}
        others = [took_s for execution, took_s in beside.items() if execution not in shared_its_fate]
        assert len(others) >= len(calm) / 2
        assert p99(others) <= 2 * p99(calm.values())
        assert max(beside.values()) < MISSED_S, "and who was on the same worker goes on with the next"


async def taken(here, until):
    """How long each of the executions took that were asked for, two at a time, until something was over."""
    times = {}

    async def asking():
        while not until.done():
            asked_s = time.monotonic()
            done = await here.client.execute("brief-once", {}, wait=True)
            assert done.status == "completed", done
            times[done.execution_id] = time.monotonic() - asked_s

    await asyncio.gather(asking(), asking())
    await until
    return times


def p99(times):
    return quantiles(times, n=100)[98]


@asynccontextmanager
async def started_again(here) -> AsyncIterator[None]:
    """Another worker, whenever the last one has died."""

    async def keep():
        while True:
            async with another_worker(here) as process:
                await process.wait()

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_an_agents_state_moves_to_the_worker_that_lives(workers_world):
    async with workers_world(AF_WORKER_LOST_S="1.5") as here:
        await here.client.push_workflow(one_step("remember", input='{customer: "ada"}'))
        first = await here.client.execute("remember-once", {}, wait=True)
        here.platform.worker.kill()

        second = await here.client.execute("remember-once", {}, wait=True)

        assert (first.output["seen"], second.output["seen"]) == (1, 2)
        assert first.output["pid"] != second.output["pid"]


async def silent_s(here, agent):
    """For how long nothing was heard of each of its workers."""
    answer = await here.client._send("GET", f"/agents/{agent}")
    return {each["worker"]: each["heard_s_ago"] for each in msgspec.json.decode(answer.content)["instances"]}


async def missed(here, agent):
    """The worker whose beat is overdue, if there is one."""
    return next((who for who, s in (await silent_s(here, agent)).items() if s > 1.5 * limits.HEARTBEAT_S), None)


async def is_back(here, agent, worker):
    """Whether it beats again, and has been looked for since."""
    return 2 * limits.WORKER_LOOK_S < (await silent_s(here, agent))[worker] < limits.HEARTBEAT_S


async def is_listed(here, agent, *, workers=1, running=1):
    """Whether the control plane has heard that this agent is busy, and so knows what would be lost."""
    answer = await here.client._send("GET", "/agents")
    listed = msgspec.json.decode(answer.content)["items"]
    return any((each["name"], each["workers"]) == (agent, workers) and each["running"] >= running for each in listed)
