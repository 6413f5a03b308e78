"""A whole control plane in the process of a test, served over a real socket: for tests that look behind the API."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from agentflow.settings import Settings, load_settings
from control_plane.api.app import create_api
from control_plane.service import ControlPlane


def plane_settings(folder: Path, nats_url: str, dsn: str | None = None) -> Settings:
    """With everything in a folder; the administrator's key in its `admin.key`."""
    return load_settings(
        environ={
            "AF_CONFIG_FILE": "/dev/null",
            "AF_HOME": str(folder),
            "AF_DB_DSN": dsn or f"sqlite:///{folder}/agentflow.db",
            "AF_NATS_URL": nats_url,
            "AF_ARTIFACTS_URL": f"file://{folder}/artifacts",
            "AF_BOOTSTRAP_FILE": str(folder / "admin.key"),
        }
    )


@asynccontextmanager
async def served(behind: ControlPlane, listening: socket.socket | None = None) -> AsyncIterator[int]:
    """The port it is served at."""
    listening = listening or socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    config = uvicorn.Config(create_api(behind, "test"), lifespan="off", log_config=None, ws="websockets-sansio")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        behind.live.close()
        server.should_exit = True
        await serving
