"""A Docker daemon for tests, from the Debian package `docker.io`, with data and a socket of its own.

It needs root. Containers get no network from it: there is no bridge, and no rule of the machine's firewall is touched.
"""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from agentflow.devstack.process import ChildProcess

_READY = re.compile(r"API listen on")


class DockerServer:
    def __init__(self, process: ChildProcess, socket: Path) -> None:
        self.process = process
        self.url = f"unix://{socket}"


@asynccontextmanager
async def docker_server(directory: Path) -> AsyncIterator[DockerServer]:
    """`directory` must have a short path: a socket's name has at most 108 bytes."""
    settings = _settings(directory)
    socket = directory / "docker.sock"
    process = await ChildProcess.start(
        "dockerd",
        [
            *("dockerd", "--config-file", settings, "--host", f"unix://{socket}", "--pidfile", directory / "pid"),
            *("--data-root", directory / "data", "--exec-root", directory / "exec"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ],
        log=directory / "dockerd.log",
        ready=_READY,
        ready_within_s=60.0,
        grace_s=20.0,
    )
    try:
        yield DockerServer(process, socket)
    finally:
        await process.stop()
        for left in _left_mounted(directory / "exec" / "netns"):
            await (await asyncio.create_subprocess_exec("umount", "--lazy", left)).wait()


def _left_mounted(folder: Path) -> list[str]:
    """A container on the host's own network makes dockerd bind that namespace here, and forget it at its end."""
    return [str(place) for place in folder.glob("*") if place.is_mount() or place.is_file()]


def _settings(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "daemon.json"
    gvisor = shutil.which("runsc")
    flags = {"runsc": ["--network=none"], "runsc-egress": ["--network=none", "--host-uds=open"]}
    runtimes = {} if gvisor is None else {name: {"path": gvisor, "runtimeArgs": args} for name, args in flags.items()}
    settings.write_bytes(msgspec.json.encode({"runtimes": runtimes}))
    return settings
