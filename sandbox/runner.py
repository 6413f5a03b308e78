"""Which sandbox runs a call: chosen by name, refused when unknown, never replaced by a weaker one."""

from typing import Protocol

from agentflow.errors import Rejected
from sandbox.backends.process import open_process_sandbox
from sandbox.policy import ExecProfile, Isolation
from sandbox.tool_call import SandboxOutcome, ToolCall


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


class UnknownBackend(Rejected):
    code = "AF1401"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no sandbox backend {name!r}.",
            hint=f"Set AF_SANDBOX to one of: {', '.join(_BACKENDS)}. No weaker one is taken in its place.",
        )


_BACKENDS = {"process": open_process_sandbox}


async def open_sandbox(backend: str) -> Sandbox:
    opener = _BACKENDS.get(backend)
    if opener is None:
        raise UnknownBackend(backend)
    return await opener()
