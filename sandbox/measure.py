"""`python -m sandbox.measure [options] BACKEND`: what a call of a tool that does nothing takes, cold and warm, as JSON.

For callers that may not import sandboxes, such as `af bench sandbox`; `bench` measures by the same functions. What is
timed is a whole call, from the request to the end of its answer: rather too much than too little, for those who ask
about its first byte. A warm call finds its sandbox started, as in a worker that is not overrun; a cold one starts it.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import structlog
import wasmtime

from agentflow.contracts.measured import Measured, Spread
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from sandbox import echo
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import Sandbox, open_sandbox
from sandbox.tool_call import ToolCall, WasmModule

BY_DOCKER = "gvisor-docker"  # gVisor as a runtime of a Docker daemon
NAMES = ("process", "docker", "gvisor", BY_DOCKER, "wasm")


class _ToolFailed(Exception):
    """What was to be measured did not happen."""


async def measured(name: str, docker: DockerOptions, *, cold: int, warm: int) -> Measured:
    """Raises nothing that a caller could mend: a sandbox that does not stand is part of the answer."""
    try:
        with tempfile.TemporaryDirectory(prefix="af-measure-") as scratch:
            tools = await asyncio.to_thread(_tools, Path(scratch))
            starting = await _spread(name, docker, tools, cold, ready=False)
            kept = None if name == "process" else await _spread(name, docker, tools, warm, ready=True)
    except AgentFlowError as error:
        return Measured(name, reason=error.message, hint=error.hint)
    except _ToolFailed as failed:
        return Measured(
            name, reason=f"A tool that does nothing failed there: {failed}", hint="See what holds: af doctor"
        )
    return Measured(name, starting, kept)


async def opened(name: str, docker: DockerOptions, *, ready: bool) -> Sandbox:
    """A sandbox by the name it is measured under; without `ready` it starts each time anew."""
    backend = "docker" if name == BY_DOCKER else name
    options = msgspec.structs.replace(docker, runtime="runsc" if name == BY_DOCKER else None)
    sandbox = await open_sandbox(backend, docker=options if ready else msgspec.structs.replace(options, idle_max=0))
    if not ready and hasattr(sandbox, "keep_none_warm"):
        sandbox.keep_none_warm()
    return sandbox


async def _spread(name: str, docker: DockerOptions, tools: Path, calls: int, *, ready: bool) -> Spread:
    sandbox: Any = await opened(name, docker, ready=ready)
    try:
        profile = compile_profile(
            ToolNeeds("echo"), backend=sandbox.backend, isolation=sandbox.isolation, folder=str(tools)
        )
        program = WasmModule(str(tools / "echo.wasm")) if name == "wasm" else "echo:echo"
        call = ToolCall(program, (str(tools),), {"a": 1}, ExecutionId("exec_measure"), "measure", 1, "measure")
        taken = []
        for turn in range(calls + ready):
            if ready and hasattr(sandbox, "warmed"):
                await sandbox.warmed()
            begun = time.perf_counter()
            outcome = await sandbox.run(call, profile)
            if outcome.fault is not None:
                raise _ToolFailed(outcome.fault.message)
            if turn or not ready:  # the first call finds nothing warm yet
                taken.append((time.perf_counter() - begun) * 1_000)
    finally:
        await sandbox.close()
    return Spread(statistics.median(taken), statistics.quantiles(taken, n=20, method="inclusive")[-1], len(taken))


def _tools(scratch: Path) -> Path:
    folder = scratch / "tools"
    folder.mkdir()
    folder.chmod(0o755)
    shutil.copy(echo.__file__, folder / "echo.py")
    (folder / "echo.wasm").write_bytes(wasmtime.wat2wasm(echo.WAT))
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.measure", description=__doc__)
    parser.add_argument("sandbox", choices=NAMES)
    parser.add_argument("--cold", type=int, default=8)
    parser.add_argument("--warm", type=int, default=40)
    parser.add_argument("--docker-host", default=DockerOptions().host)
    parser.add_argument("--image", default="")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is the answer
    docker = DockerOptions(options.docker_host, options.image)
    found = asyncio.run(measured(options.sandbox, docker, cold=options.cold, warm=options.warm))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
