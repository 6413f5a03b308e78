"""Which sandbox runs a call: chosen by name, refused when it is not there, never replaced by a weaker one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from agentflow.errors import Rejected
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ExecProfile, Isolation, profile_hash
from sandbox.tool_call import SandboxOutcome, ToolCall
from sandbox.workspace import digest, diverged

__all__ = ["DockerOptions", "Sandbox", "Sandboxes", "UnknownBackend", "open_sandbox", "run_in_workspace"]


class Sandbox(Protocol):
    @property
    def backend(self) -> str: ...

    @property
    def isolation(self) -> Isolation:
        """The best this machine allows, found by trying."""
        ...

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        """Run one call to its end. Cancelling it ends every process of the call before it returns."""
        ...

    async def close(self) -> None:
        """End what is kept ready between calls."""
        ...


class UnknownBackend(Rejected):
    code = "AF1401"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no sandbox backend {name!r}.",
            hint=f"Name one of: {', '.join(BACKENDS)}. No weaker one is taken in its place.",
        )


# Each is imported when it is opened: a worker carries no library of a backend it does not use.
async def _process(_: DockerOptions) -> Sandbox:
    from sandbox.backends.process import open_process_sandbox

    return await open_process_sandbox()


async def _docker(docker: DockerOptions) -> Sandbox:
    from sandbox.backends.docker import open_docker_sandbox

    return await open_docker_sandbox(docker)


async def _gvisor(docker: DockerOptions) -> Sandbox:
    from sandbox.backends.gvisor import open_gvisor_sandbox

    return await open_gvisor_sandbox(docker)


async def _wasm(_: DockerOptions) -> Sandbox:
    from sandbox.backends.wasm import open_wasm_sandbox

    return await open_wasm_sandbox()


BACKENDS: Mapping[str, Callable[[DockerOptions], Awaitable[Sandbox]]] = {
    "process": _process,
    "docker": _docker,
    "gvisor": _gvisor,
    "wasm": _wasm,
}


async def open_sandbox(backend: str, *, docker: DockerOptions | None = None) -> Sandbox:
    """Raises `SandboxUnavailable` where the backend does not stand on this machine."""
    opener = BACKENDS.get(backend)
    if opener is None:
        raise UnknownBackend(backend)
    return await opener(docker or DockerOptions())


async def run_in_workspace(sandbox: Sandbox, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
    """Run a call whose workspace must be what the last step left; the outcome says what this one leaves.

    A workspace that diverged stops the step before the tool acts on it: a tool that finds half of its files gone would
    mend them as it thinks best.
    """
    if call.workspace is None:
        return await sandbox.run(call, profile)
    if call.workspace_digest is not None:
        fault = await asyncio.to_thread(diverged, call.workspace, call.workspace_digest)
        if fault is not None:
            return SandboxOutcome(profile.isolation, profile_hash(profile), 0.0, fault=fault, backend=sandbox.backend)
    outcome = await sandbox.run(call, profile)
    left = await asyncio.to_thread(digest, call.workspace)
    return msgspec.structs.replace(outcome, workspace_digest=left)


class Sandboxes:
    """All backends that the tools of one worker need, each opened once, when the first tool asks for it."""

    def __init__(self, *, docker: DockerOptions | None = None) -> None:
        self._docker = docker
        self._open: dict[str, Sandbox] = {}

    async def of(self, backend: str) -> Sandbox:
        if backend not in self._open:
            self._open[backend] = await open_sandbox(backend, docker=self._docker)
        return self._open[backend]

    async def close(self) -> None:
        for sandbox in self._open.values():
            await sandbox.close()
        self._open.clear()
