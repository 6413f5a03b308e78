"""`python -m sandbox [--json] [--docker-host URL] [--image DIGEST] [BACKEND ...]`: try the sandboxes of this machine.

For callers that may not import sandboxes, such as `af doctor`. Each backend is opened as a worker would and runs a tool
that tries to get out; nothing is believed that was not tried. Exit code 0: all that were named stand; 2: not.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import wasmtime

from agentflow.errors import AgentFlowError
from sandbox import versions
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import BACKENDS, Sandbox, open_sandbox
from sandbox.tool_call import ToolCall, WasmModule

_VERSION = {
    "process": ("bubblewrap", ["bwrap", "--version"]),
    "docker": ("runc", ["runc", "--version"]),
    "gvisor": ("runsc", ["runsc", "--version"]),
}
_ECHO = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 32)) (i64.extend_i32_u (local.get 1)))))"""


class Finding(msgspec.Struct, frozen=True):
    backend: str
    stands: bool
    isolation: str = ""
    layers: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()  # what the tool inside could reach and should not
    ms: float = 0.0
    reason: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()


async def examine(backend: str, docker: DockerOptions) -> Finding:
    warnings = tuple(_warnings(backend))
    try:
        sandbox = await open_sandbox(backend, docker=docker)
        try:
            return await _tried(sandbox, warnings)
        finally:
            await sandbox.close()
    except AgentFlowError as error:
        return Finding(backend, False, reason=error.message, hint=error.hint, warnings=warnings)


async def _tried(sandbox: Sandbox, warnings: tuple[str, ...]) -> Finding:
    with tempfile.TemporaryDirectory(prefix="agentflow-proof-") as scratch:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tools, given = await asyncio.to_thread(_bait, Path(scratch), port)
        needs = ToolNeeds("proof", timeout_s=20)
        profile = compile_profile(needs, backend=sandbox.backend, isolation=sandbox.isolation, folder=str(tools))
        program: str | WasmModule = "proof:prove"
        if sandbox.backend == "wasm":
            program = WasmModule(str(tools / "echo.wasm"))
        call = ToolCall(program, (str(tools),), given, "exec_proof", "proof", 1, "proof")  # type: ignore[arg-type]
        async with server:
            outcome = await sandbox.run(call, profile)
    reached = tuple(name for name, got in outcome.output.items() if got is True) if outcome.output else ()
    fault = outcome.fault.message if outcome.fault else ""
    return Finding(
        sandbox.backend,
        outcome.fault is None and not (reached and sandbox.isolation == "full"),
        isolation=outcome.isolation,
        layers=outcome.layers,
        reached=reached,
        ms=round(outcome.duration_s * 1000, 1),
        reason=fault,
        warnings=warnings,
    )


def _bait(scratch: Path, port: int) -> tuple[Path, dict[str, Any]]:
    """What the tool reaches for, really there; and the tool."""
    (scratch / "private").mkdir(mode=0o700)
    (scratch / "private" / "secret").write_text("secret")
    tools = scratch / "tools"
    tools.mkdir()
    tools.chmod(0o755)
    shutil.copy(Path(__file__).with_name("proof.py"), tools / "proof.py")
    (tools / "echo.wasm").write_bytes(wasmtime.wat2wasm(_ECHO))
    return tools, {"port": port, "secret": str(scratch / "private" / "secret")}


def _warnings(backend: str) -> list[str]:
    if backend not in _VERSION:
        return []
    component, argv = _VERSION[backend]
    if shutil.which(argv[0]) is None:
        return ["bubblewrap is not installed: no file system of its own"] if backend == "process" else []
    said = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False).stdout
    found = versions.warning(component, said.split("\n")[0].split(" ")[-1])
    return [found] if found else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    parser.add_argument("backends", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--docker-host", default=DockerOptions().host)
    parser.add_argument("--image", default="")
    options = parser.parse_args()
    docker = DockerOptions(options.docker_host, options.image)

    async def all_of_them() -> list[Finding]:
        return [await examine(name, docker) for name in options.backends or BACKENDS]

    findings = asyncio.run(all_of_them())
    if options.json:
        sys.stdout.write(msgspec.json.encode(findings).decode() + "\n")
    else:
        for found in findings:
            sys.stdout.write(f"{found.backend}: {'stands' if found.stands else found.reason} {found.isolation}\n")
    return 0 if all(found.stands for found in findings) else 2


if __name__ == "__main__":
    sys.exit(main())
