"""A tool that `python -m sandbox` runs in every backend: it tries what a sandbox must refuse, and says what it saw.

Standard library only: it runs inside, where nothing of ours exists.
"""

import os
import socket
from typing import Any


def prove(input: dict[str, Any]) -> dict[str, bool]:
    """What could be reached. All of it false is what a sandbox is for."""
    return {
        "worker's port": _connects(("127.0.0.1", input["port"])),
        "the internet": _connects(("192.0.2.1", 80)) or _resolves(),
        "a private file": _reads(input["secret"]),
        "the environment": bool(set(os.environ) - {"HOME"}),  # noqa: TID251 - this is the question
    }


def reach_out(input: dict[str, Any]) -> str:
    """A name that was granted, by a program that knows of no proxy: what is heard there."""
    with socket.create_connection((input["host"], 80), timeout=10) as connection:
        connection.sendall(b"hello\n")
        return connection.makefile().readline().strip()


def leave(input: dict[str, Any]) -> str:
    """Something in the workspace, for another sandbox to find."""
    with open(os.environ["AGENTFLOW_WORKSPACE"] + "/left", "a+") as file:  # noqa: PTH123, TID251
        file.seek(0)
        before = file.read()
        file.write(input["mark"])
    return before


def _reads(path: str) -> bool:
    """By opening it: Landlock is not asked when a program only asks whether it might."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def _connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def _resolves() -> bool:
    try:
        return bool(socket.getaddrinfo("example.com", 80))
    except OSError:
        return False
