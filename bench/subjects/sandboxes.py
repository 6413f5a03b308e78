"""What a sandbox adds to a tool that does nothing, cold and warm, and what a neighbour feels of one that explodes."""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import docker
from rich.console import Console

from agentflow.contracts.measured import Spread
from agentflow.devstack.docker import docker_server
from agentflow.ids import ExecutionId
from bench.report import Figures, Results
from sandbox.backends.daemon import DockerOptions
from sandbox.measure import NAMES, measured
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from sandbox.tool_call import ToolCall
from tests.sandboxes.image import import_image

COLD, WARM, NEIGHBOURS = 8, 40, 20
CALM_S_MAX = 30.0
TOOL = """
import os

def noop(input):
    return input

def storm(input):
    while True:
        try:
            if os.fork() == 0:
                while True:
                    pass
        except OSError:
            pass
"""


def run(console: Console) -> Results:
    return asyncio.run(_run(console))


async def _run(console: Console) -> Results:
    results: Results = {}
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="af-bench-")))
        options = await stack.enter_async_context(_daemon(scratch, console))
        folder = scratch / "tools"
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "toolbox.py").write_text(TOOL)
        for name in NAMES:
            console.print(f"measuring {name} ...", style="dim")
            found = await measured(name, options, cold=COLD, warm=WARM)
            if found.cold is None:
                console.print(f"{name} is left out: {found.reason} {found.hint}")
                continue
            results[name] = {"cold": _figures(found.cold)}
            if found.warm is not None:
                results[name]["warm"] = _figures(found.warm)
            if name in ("process", "gvisor"):
                results[name]["beside a bomb"] = await _beside_a_bomb(name, folder)
    return results


def _figures(spread: Spread) -> Figures:
    return {"p50_ms": spread.p50_ms, "p95_ms": spread.p95_ms}


async def _beside_a_bomb(backend: str, folder: Path) -> Figures:
    """A tenant's calls while another one's forks without end: how much slower, and how soon it is calm again."""
    sandbox: Any = await open_sandbox(backend)
    try:
        needs = {"backend": backend, "isolation": sandbox.isolation, "folder": str(folder)}
        plain = compile_profile(ToolNeeds("t"), **needs)
        bounded = compile_profile(ToolNeeds("bomb", timeout_s=6, cpus=0.5, processes_max=24), **needs)

        async def timed() -> float:
            begun = time.perf_counter()
            await sandbox.run(_call("toolbox:noop", folder, "neighbour"), plain)
            return (time.perf_counter() - begun) * 1000

        calm = [await timed() for _ in range(NEIGHBOURS)]
        bomb = asyncio.create_task(sandbox.run(_call("toolbox:storm", folder, "bomber"), bounded))
        beside = [await timed() for _ in range(NEIGHBOURS)]
        await bomb
        ended = time.perf_counter()
        while await timed() > 1.5 * statistics.median(calm) and time.perf_counter() - ended < CALM_S_MAX:
            pass
        return {
            "p99_times": statistics.quantiles(beside, n=100)[-1] / statistics.quantiles(calm, n=100)[-1],
            "calm_again_s": time.perf_counter() - ended,
        }
    finally:
        await sandbox.close()


def _call(program: Any, folder: Path, tenant: str = "default") -> ToolCall:
    return ToolCall(program, (str(folder),), {"a": 1}, ExecutionId("exec_1"), "s", 1, "k", tenant=tenant)


@asynccontextmanager
async def _daemon(scratch: Path, console: Console) -> AsyncIterator[DockerOptions]:
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        console.print("no Docker daemon is started: that needs root and apt-get install -y docker.io")
        yield DockerOptions()
        return
    async with docker_server(scratch / "docker") as server:
        client = docker.APIClient(base_url=server.url)
        image = await asyncio.to_thread(import_image, client)
        client.close()
        yield DockerOptions(server.url, image)
