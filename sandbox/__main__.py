"""`python -m sandbox [--json] [--docker-host URL] [--image DIGEST] [--tool-image DIGEST] [BACKEND ...]`: try them all.

For callers that may not import sandboxes, such as `af doctor`. Each backend is opened as a worker would and runs a tool
that tries to get out, one that resolves a granted name, and two that hand a workspace on by way of an archive; images
of tools are started under each runtime. Nothing is believed that was not tried.
Exit code 0: all that were named stand; 2: not.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
import wasmtime

from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from sandbox import echo, versions
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import BACKENDS, Sandbox, open_sandbox
from sandbox.tool_call import Container, ToolCall, WasmModule
from sandbox.workspace import digest, pack, unpack

_VERSION = {
    "process": ("bubblewrap", ["bwrap", "--version"]),
    "docker": ("runc", ["runc", "--version"]),
    "gvisor": ("runsc", ["runsc", "--version"]),
}
_HOLDS = "holds"


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
    proofs: dict[str, str] = {}  # what else was tried → `holds`, or what went wrong


async def examine(backend: str, docker: DockerOptions, images: Sequence[str] = ()) -> Finding:
    warnings = tuple(_warnings(backend))
    try:
        sandbox = await open_sandbox(backend, docker=msgspec.structs.replace(docker, idle_max=0))
        if hasattr(sandbox, "keep_none_warm"):
            sandbox.keep_none_warm()
        try:
            found = await _tried(sandbox, warnings)
            if not found.stands or backend == "wasm":  # modules have no names to resolve, and no shell to look around
                return found
            return msgspec.structs.replace(found, proofs=await _proved(sandbox, images))
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
        call = ToolCall(program, (str(tools),), given, ExecutionId("exec_proof"), "proof", 1, "proof")
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


async def _proved(sandbox: Sandbox, images: Sequence[str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="agentflow-proof-") as scratch:
        tools, _ = await asyncio.to_thread(_bait, Path(scratch), 0)
        proofs = {"names": await _names(sandbox, Path(scratch), tools)}
        proofs["checkpoint"] = await _checkpoint(sandbox, Path(scratch), tools)
        if sandbox.backend in ("docker", "gvisor"):
            for image in images:
                proofs[image] = await _started(sandbox, tools, image)
    return proofs


async def _names(sandbox: Sandbox, scratch: Path, tools: Path) -> str:
    """A granted name leads to the egress proxy, for a program that knows of none."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.readline())
        writer.close()

    socket = str(scratch / "proxy.sock")
    async with await asyncio.start_unix_server(answer, socket):
        granted = ("network.http:example.com",)
        return await _holds(
            sandbox, tools, "proof:reach_out", {"host": "example.com"}, "heard hello", granted, egress=socket
        )


async def _checkpoint(sandbox: Sandbox, scratch: Path, tools: Path) -> str:
    """What one sandbox leaves is packed, unpacked elsewhere, and found by another: so a workspace survives a worker."""
    first, second = scratch / "first", scratch / "second"
    for folder in (first, second):
        folder.mkdir()
    granted = ("fs.workspace",)
    said = await _holds(sandbox, tools, "proof:leave", {"mark": "1"}, "", granted, workspace=str(first))
    if said != _HOLDS:
        return said
    with tempfile.TemporaryFile() as archive:
        pack(str(first), archive)
        archive.seek(0)
        unpack(archive, str(second))
    if digest(str(first)) != digest(str(second)):
        return "what came back is not what was kept"
    return await _holds(sandbox, tools, "proof:leave", {"mark": "2"}, "1", granted, workspace=str(second))


async def _started(sandbox: Sandbox, tools: Path, image: str) -> str:
    """An image's own command under this runtime, with an empty input: a system call it lacks ends it."""
    needs = ToolNeeds("proof", timeout_s=20)
    profile = compile_profile(needs, backend=sandbox.backend, isolation=sandbox.isolation, folder=str(tools))
    call = ToolCall(Container(image), (), {}, ExecutionId("exec_proof"), "proof", 1, "proof")
    try:
        outcome = await sandbox.run(call, profile)
    except AgentFlowError as error:
        return error.message
    if outcome.fault is None:
        return _HOLDS
    return f"{outcome.fault.code}: {outcome.fault.message} {outcome.logs[-500:]}".strip()


async def _holds(
    sandbox: Sandbox,
    tools: Path,
    program: str,
    given: dict[str, Any],
    expected: str,
    permissions: tuple[str, ...],
    **ways: str,
) -> str:
    needs = ToolNeeds("proof", timeout_s=20, permissions=permissions)
    profile = compile_profile(needs, backend=sandbox.backend, isolation=sandbox.isolation, folder=str(tools))
    call = ToolCall(program, (str(tools),), given, ExecutionId("exec_proof"), "proof", 1, "proof", **ways)
    outcome = await sandbox.run(call, profile)
    if outcome.fault is not None:
        return outcome.fault.message
    return _HOLDS if outcome.output == expected else f"{outcome.output!r} came back"


def _bait(scratch: Path, port: int) -> tuple[Path, dict[str, Any]]:
    """What the tool reaches for, really there; and the tool."""
    (scratch / "private").mkdir(mode=0o700)
    (scratch / "private" / "secret").write_text("secret")
    tools = scratch / "tools"
    tools.mkdir()
    tools.chmod(0o755)
    shutil.copy(Path(__file__).with_name("proof.py"), tools / "proof.py")
    (tools / "echo.wasm").write_bytes(wasmtime.wat2wasm(echo.WAT))
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
    parser.add_argument(
        "--tool-image", action="append", default=[], help="an image of a tool, by digest; may be repeated"
    )
    options = parser.parse_args()
    docker = DockerOptions(options.docker_host, options.image)

    async def all_of_them() -> list[Finding]:
        return [await examine(name, docker, options.tool_image) for name in options.backends or BACKENDS]

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is the answer
    findings = asyncio.run(all_of_them())
    if options.json:
        sys.stdout.write(msgspec.json.encode(findings).decode() + "\n")
    else:
        for found in findings:
            proofs = "".join(f", {name}: {said}" for name, said in found.proofs.items())
            state = "stands" if found.stands else found.reason
            sys.stdout.write(f"{found.backend}: {state} {found.isolation}{proofs}\n")
    return 0 if all(found.stands for found in findings) else 2


if __name__ == "__main__":
    sys.exit(main())
