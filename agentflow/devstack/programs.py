"""Where the servers' programs are, and a free port for those that cannot choose one themselves."""

import importlib.util
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from agentflow.devstack.process import ServerDidNotStart
from agentflow.errors import Unavailable

LOOPBACK = "127.0.0.1"

_PORT_ATTEMPTS = 5

T = TypeVar("T")


class ServerProgramMissing(Unavailable):
    code = "AF2202"


def program_on_path(name: str, *, install: str) -> Path:
    """A program that a wheel put beside our Python, or that the machine has."""
    beside_python = Path(sys.executable).parent / name
    if beside_python.is_file():
        return beside_python
    if (found := shutil.which(name)) is not None:
        return Path(found)
    raise ServerProgramMissing(
        f"the program {name} is neither beside {sys.executable} nor on the PATH", hint=f"run `{install}`"
    )


def program_in_package(package: str, inside: str, *, install: str) -> Path:
    """A program inside an installed package, which is not imported: some do much when they are."""
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None and (program := Path(spec.origin).parent / inside).is_file():
        return program
    raise ServerProgramMissing(f"the Python package {package} with {inside} is not installed", hint=f"run `{install}`")


async def on_free_port(start: Callable[[int], Awaitable[T]]) -> T:
    """Start something on a port that is free, and again on another if somebody was faster."""
    for _ in range(_PORT_ATTEMPTS - 1):
        try:
            return await start(_free_port())
        except ServerDidNotStart as problem:
            if "address already in use" not in problem.output.lower():
                raise
    return await start(_free_port())


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
