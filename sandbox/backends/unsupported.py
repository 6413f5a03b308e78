"""What a backend says when it cannot do what is asked of it: refused, never done by a weaker one."""

from agentflow.errors import Rejected, Unavailable
from sandbox.tool_call import Command, Container, ToolCall, WasmModule


class SandboxUnavailable(Unavailable):
    code = "AF1411"
    retryable = False

    def __init__(self, backend: str, reason: str, *, hint: str) -> None:
        super().__init__(f"The sandbox backend {backend!r} is not available here: {reason}.", hint=hint)


class CannotRunThis(Rejected):
    code = "AF1412"

    def __init__(self, backend: str, what: str) -> None:
        super().__init__(
            f"The sandbox backend {backend!r} cannot run {what}.",
            hint="Python functions and commands run in process, docker and gvisor; images in docker and gvisor; "
            "WASM modules in wasm only.",
        )


def refuse_unless(
    call: ToolCall, backend: str, *, python: bool = False, command: bool = False, container: bool = False
) -> None:
    match call.call:
        case WasmModule():
            raise CannotRunThis(backend, "a WASM module")
        case Container() if not container:
            raise CannotRunThis(backend, "a container image")
        case Command() if not command:
            raise CannotRunThis(backend, "a command")
        case str() if not python:
            raise CannotRunThis(backend, "a Python function")
