"""Workers: agents' states saved, woken and moved, a worker's start, and what a result spool costs."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec
from rich.console import Console

from agentflow import limits
from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, seal
from agentflow.contracts.step import Heartbeat, ReleaseState, StepRequest, WorkerControl
from agentflow.devstack.platform import embedded_platform
from agentflow.devstack.postgres import postgres_server
from agentflow.ids import AgentName, ExecutionId, MessageId, StepPath, TraceId, UlidSource, WorkerId
from agentflow.settings import inherited_environment
from agentflow.telemetry.logs import configure_logs
from bench.report import Figures, Results, Workloads
from worker.agents.agent import StepContext
from worker.agents.hooks import HookedAgent
from worker.reporter import Reporter
from worker.spool import SpooledResult, open_spool
from worker.states.desk import StateDesk
from worker.states.stateful import StatefulAgent, StateRules

HERE = Path(__file__).parent.parent
TYPICAL = {"conversation": [{"role": "user", "text": f"message {n}: " + "x" * 80} for n in range(100)]}  # about 11 KB
REPEATS = 100


def run(console: Console) -> Results:
    configure_logs("error", "console")
    return asyncio.run(_run(console))


async def _run(console: Console) -> Results:
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="agentflow-bench-") as scratch:
        console.print("measuring on SQLite ...", style="dim")
        results["sqlite"] = await _measured(Path(scratch) / "sqlite", None)
        console.print("measuring on PostgreSQL ...", style="dim")
        async with postgres_server(Path(scratch) / "server") as server:
            results["postgresql"] = await _measured(Path(scratch) / "postgresql", await server.create_database())
    return results


async def _measured(directory: Path, dsn: str | None) -> Workloads:
    environment = {} if dsn is None else {"AF_DB_DSN": dsn}
    async with (
        embedded_platform(directory, agents_file=HERE / "agents.yaml", extra_env=environment) as running,
        jetstream(running.nats_url, name="bench") as bus,
    ):
        return {
            "agent state": await _states(running.nats_url),
            "worker start": await _start(directory, running.nats_url),
            "result spool": await _spool(bus, directory / "bench-spool"),
        }


class Clerk:
    def on_start(self, agent: Any) -> None:
        agent.state.setdefault("turns", 0)

    async def on_message(self, input: Any, context: StepContext) -> int:
        context.state["turns"] += 1
        context.state["conversation"] = TYPICAL["conversation"]
        turns: int = context.state["turns"]
        return turns


@asynccontextmanager
async def _living(url: str, name: str) -> Any:
    """A worker as the control plane sees it: it is connected, beats, and lets go what others need."""
    async with jetstream(url, name=name) as bus, _hosting(bus, WorkerId(name)) as agent:
        yield agent


@asynccontextmanager
async def _hosting(bus: JetStreamBus, worker: WorkerId) -> Any:
    clock = SystemClock()
    desk = StateDesk(clock=clock, worker=worker, pool="default")
    desk.connect(bus)
    rules = StateRules(key="who")
    agent = StatefulAgent(
        AgentName("clerk"), lambda life: HookedAgent(Clerk, life, concurrency=1), rules, desk=desk, clock=clock
    )
    control: msgspec.json.Decoder[WorkerControl] = msgspec.json.Decoder(WorkerControl)

    def told(raw: bytes) -> None:
        if isinstance(order := control.decode(raw), ReleaseState):
            agent.release(order)

    async def beat() -> None:
        while True:
            said = Heartbeat(worker, {"clerk": 0}, 0, clock.now_ms())
            await bus.broadcast(subjects.of_pool(subjects.HEARTBEATS, "default"), msgspec.json.encode(said))
            await asyncio.sleep(0.5)

    async def here(_: bytes) -> bytes:
        return b""

    listening = await bus.listen(subjects.of_pool(subjects.WORKER_CONTROL, "default"), told)
    await bus.answer(subjects.of_pool(subjects.worker_line(worker), "default"), here)
    beating = asyncio.create_task(beat())
    try:
        yield agent
    finally:
        beating.cancel()
        await listening.stop()


async def _step(agent: StatefulAgent, who: str, number: int) -> None:
    clock, key = SystemClock(), f"{who}/{number}/{time.perf_counter_ns()}"
    request = StepRequest(ExecutionId("exec_b"), "bench", 0, StepPath("s"), "s", 1, {"who": who}, 30_000, key)
    context = StepContext(ExecutionId("exec_b"), "s", 1, key, 0, ends_at_s=clock.monotonic_s() + 30, clock=clock)
    await agent.run(request, context)


async def _states(url: str) -> Figures:
    async with _living(url, "wrk_one") as one, _living(url, "wrk_two") as two:
        await _step(one, "ada", 0)
        saves = [await _timed(lambda n=n: _step(one, "ada", n)) for n in range(REPEATS)]
        moves = [await _timed(lambda n=n: _step(two if n % 2 else one, "ada", n)) for n in range(1, REPEATS)]
        fresh = [await _timed(lambda n=n: _step(one, f"new{n}", n)) for n in range(REPEATS)]
        await one.close()
        woken = [await _timed(lambda n=n: _step(one, f"new{n}", n)) for n in range(REPEATS)]
    async with _living(url, "wrk_three") as three:
        await _step(three, "lost", 0)
        await asyncio.sleep(2 * limits.HEARTBEAT_S)  # it has been there for a while
    async with _living(url, "wrk_four") as four:
        after_loss_s = await _timed(lambda: _step(four, "lost", 1))
    return {
        "checkpoint_ms_p50": median(saves) * 1000,
        "checkpoint_ms_p95": quantiles(saves, n=20)[-1] * 1000,
        "first_start_ms_p95": quantiles(fresh, n=20)[-1] * 1000,
        "wake_ms_p95": quantiles(woken, n=20)[-1] * 1000,
        "migration_ms_p95": quantiles(moves, n=20)[-1] * 1000,
        "migration_from_a_lost_worker_s": after_loss_s,
    }


async def _start(directory: Path, nats_url: str) -> Figures:
    taken = []
    for number in range(5):
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "worker"),
            env=inherited_environment()
            | {
                "AF_NATS_URL": nats_url,
                "AF_AGENTS_FILE": str(HERE / "agents.yaml"),
                "AF_HOME": str(directory / f"start-{number}"),
                "AF_CONFIG_FILE": os.devnull,
                "AF_LOG_FORMAT": "json",
            },
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        async for line in process.stderr:
            if b'"worker.ready"' in line:
                break
        taken.append(time.perf_counter() - begun)
        process.kill()
        await process.wait()
    return {"process_to_ready_ms_p50": median(taken) * 1000}


async def _spool(bus: JetStreamBus, folder: Path) -> Figures:
    spool = open_spool(folder, bytes_max=64 * 1024 * 1024)
    kept = [await _timed(lambda n=n: _kept(spool, n)) for n in range(REPEATS)]
    spool.close()
    rates = {}
    for turn in range(3):  # in turns, so that the machine's noise meets both
        for first in (False, True):
            rates.setdefault(first, []).append(await _reported_per_s(bus, folder / str(turn), spool_first=first))
    late, always = median(rates[False]), median(rates[True])
    return {
        "fsync_ms_p50": median(kept) * 1000,
        "results_per_s_when_late": late,
        "results_per_s_always": always,
        "always_to_when_late": always / late,
    }


async def _kept(spool: Any, number: int) -> None:
    await asyncio.to_thread(spool.keep, [SpooledResult(f"r{number}", "workflows.bench.in.0", b"x" * 800)])


async def _reported_per_s(bus: JetStreamBus, folder: Path, *, spool_first: bool, results: int = 2_000) -> float:
    reporter = Reporter(bus=bus, clock=SystemClock(), spool=open_spool(folder, bytes_max=64 * 1024 * 1024))
    reporter.start()
    ids = UlidSource(SystemClock().now_ms)
    subject, left = subjects.workflow_in("nobody", 999, "default"), iter(range(results))

    async def sender() -> None:
        for _ in left:
            message = _message(ids)
            await reporter.send(subject, message, message.id, spool_first=spool_first)

    begun = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(64)))
    seconds = time.perf_counter() - begun
    await reporter.close()
    return results / seconds


def _message(ids: UlidSource) -> Message:
    return seal(
        id=MessageId(ids.message()),
        trace_id=TraceId("0" * 32),
        span_id="0" * 16,
        sender="bench",
        to="nobody",
        type="response",
        payload={"output": "x" * 200},
        metadata={},
        at_ms=0,
    )


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun
