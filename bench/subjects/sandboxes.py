"""What a sandbox adds to a tool that does nothing: cold, and warm, for each backend of this machine."""

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
from bench.report import Figures, Results
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from sandbox.tool_call import ToolCall, WasmModule
from tests.sandboxes.image import import_image

COLD, WARM = 8, 40
TOOL = "def noop(input):\n    return input\n"
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
            except AgentFlowError as error:
                console.print(f"{name}: {error}")
    return results


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
            call = ToolCall(program, (str(folder),), {"a": 1}, "exec_1", "s", 1, "k")  # type: ignore[arg-type]
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
