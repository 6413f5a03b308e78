"""Which sandbox runs a call: chosen by name, refused when it is not there, never replaced by a weaker one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from agentflow.errors import AgentFlowError, Rejected
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import ExecProfile, Isolation
from sandbox.tool_call import SandboxOutcome, ToolCall

__all__ = ["DockerOptions", "Sandbox", "Sandboxes", "UnknownBackend", "open_sandbox"]


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


class Sandboxes:
    """All backends that the tools of one worker need, each opened once, when the first tool asks for it."""

    def __init__(self, deployed: str, *, docker: DockerOptions | None = None) -> None:
        self.deployed = deployed  # what fences a tool that asks for nothing stronger
        self._docker = docker
        self._opened: dict[str, asyncio.Task[Sandbox]] = {}

    async def of(self, backend: str) -> Sandbox:
        """Raises `SandboxUnavailable` where it does not stand, each time anew: what is away may come back."""
        opening = self._opened.get(backend)
        if opening is None:
            opening = self._opened[backend] = asyncio.create_task(open_sandbox(backend, docker=self._docker))
        try:
            return await asyncio.shield(opening)  # whoever asked first may be gone before it is open
        except AgentFlowError:
            self._opened.pop(backend, None)
            raise

    async def close(self) -> None:
        while self._opened:
            _, opening = self._opened.popitem()
            for sandbox in await asyncio.gather(opening, return_exceptions=True):
                if not isinstance(sandbox, BaseException):
                    await sandbox.close()
