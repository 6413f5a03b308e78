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
import wasmtime
from rich.console import Console

from agentflow.devstack.docker import docker_server
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from bench.report import Figures, Results
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from sandbox.tool_call import ToolCall, WasmModule
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
ECHO = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 32)) (i64.extend_i32_u (local.get 1)))))"""


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
        (folder / "echo.wasm").write_bytes(wasmtime.wat2wasm(ECHO))
        for backend, runtime in (
            ("process", None),
            ("docker", None),
            ("gvisor", None),
            ("docker", "runsc"),
            ("wasm", None),
        ):
            name = backend if runtime is None else "gvisor by docker"
            if backend == "docker" and options is None:
                continue
            try:
                results[name] = await _measured(backend, runtime, options, folder)
                if backend in ("process", "gvisor") and runtime is None:
                    results[name]["beside a bomb"] = await _beside_a_bomb(backend, folder)
            except AgentFlowError as error:
                console.print(f"{name}: {error}")
    return results


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
async def _daemon(scratch: Path, console: Console) -> AsyncIterator[DockerOptions | None]:
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        console.print("docker is left out: it needs root and apt-get install -y docker.io")
        yield None
        return
    async with docker_server(scratch / "docker") as server:
        client = docker.APIClient(base_url=server.url)
        image = await asyncio.to_thread(import_image, client)
        client.close()
        yield DockerOptions(server.url, image)


async def _measured(
    backend: str, runtime: str | None, options: DockerOptions | None, folder: Path
) -> dict[str, Figures]:
    figures = {}
    for warm in (False, True):
        chosen = None if options is None else DockerOptions(options.host, options.image, runtime, 8 if warm else 0)
        sandbox: Any = await open_sandbox(backend, docker=chosen)
        try:
            if not warm and hasattr(sandbox, "keep_none_warm"):
                sandbox.keep_none_warm()
            profile = compile_profile(ToolNeeds("t"), backend=backend, isolation=sandbox.isolation, folder=str(folder))
            program: Any = WasmModule(str(folder / "echo.wasm")) if backend == "wasm" else "toolbox:noop"
            call = _call(program, folder)
            taken = []
            for turn in range((WARM if warm else COLD) + 1):
                if warm and hasattr(sandbox, "warmed"):
                    await sandbox.warmed()
                begun = time.perf_counter()
                outcome = await sandbox.run(call, profile)
                if outcome.fault is not None:
                    raise RuntimeError(f"{backend}: {outcome.fault}")
                if turn or not warm:  # the first call of a warm one finds nothing warm yet
                    taken.append((time.perf_counter() - begun) * 1000)
        finally:
            await sandbox.close()
        if warm and backend == "process":
            continue  # it keeps nothing warm: its cold call is its call
        spread = statistics.quantiles(taken, n=20)
        figures["warm" if warm else "cold"] = {"p50_ms": statistics.median(taken), "p95_ms": spread[-1]}
    return figures
