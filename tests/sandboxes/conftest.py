"""Real sandboxes for tests: one Docker daemon for a whole session, and every backend opened the way a worker does."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import docker
import msgspec
import pytest

from agentflow.devstack.docker import DockerServer, docker_server
from sandbox.backends.cgroup import find_cgroups
from sandbox.backends.daemon import DockerOptions
from sandbox.backends.process import ProcessSandbox
from sandbox.policy import ExecProfile, ToolNeeds, compile_profile
from sandbox.runner import Sandbox, open_sandbox
from sandbox.tool_call import ToolCall
from tests.sandboxes.image import SETUID, import_image


def require(*programs: str) -> None:
    missing = [package for program, package in PROGRAMS.items() if program in programs and not shutil.which(program)]
    if missing:
        pytest.skip(f"needs apt-get install -y {' '.join(missing)}")
    if os.getuid() != 0:
        pytest.skip("needs root: it starts a daemon of its own")


PROGRAMS = {"dockerd": "docker.io", "runsc": "runsc", "bwrap": "bubblewrap"}


@pytest.fixture(scope="session")
def dockerd() -> Iterator[DockerServer]:
    require("dockerd")
    with (
        tempfile.TemporaryDirectory(prefix="af-docker-", ignore_cleanup_errors=True) as directory,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        running = docker_server(Path(directory))
        server = runner.run(running.__aenter__())
        try:
            yield server
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def image(dockerd: DockerServer) -> str:
    client = docker.APIClient(base_url=dockerd.url)
    try:
        return import_image(client)
    finally:
        client.close()


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable:
    """Open a backend by name; what needs a program that is not here skips the test and says how to get it."""

    named = getattr(getattr(request.node, "callspec", None), "params", {}).values()
    daemon = None
    if "image" in request.fixturenames or any(isinstance(name, str) and "docker" in name for name in named):
        # Now, while no event loop runs: the daemon is started on one of its own.
        daemon = DockerOptions(request.getfixturevalue("dockerd").url, request.getfixturevalue("image"))

    @asynccontextmanager
    async def opening(name: str, **options):
        sandbox = await _open(name, daemon if daemon is None else msgspec.structs.replace(daemon, **options))
        try:
            yield sandbox
        finally:
            await sandbox.close()

    return opening


async def _open(name: str, daemon: DockerOptions | None) -> Sandbox:
    match name:
        case "bubblewrap":
            require("bwrap")
            return await open_sandbox("process")
        case "process":
            return ProcessSandbox(isolation=(await open_sandbox("process")).isolation, cgroups=find_cgroups())
        case "docker":
            return await open_sandbox("docker", docker=daemon)
        case "gvisor":
            require("runsc")
            return await open_sandbox("gvisor")
        case "gvisor_docker":
            require("dockerd", "runsc")
            return await open_sandbox("docker", docker=msgspec.structs.replace(daemon, runtime="runsc"))
    raise ValueError(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the tools lie: open to other users once it is mounted."""
    place = tmp_path / "tools"
    place.mkdir(mode=0o755)
    shutil.copy(Path(__file__).with_name("probes.py"), place / "probes.py")
    shutil.copy(Path(__file__).with_name("bombs.py"), place / "bombs.py")
    return place


def profile_for(sandbox: Sandbox, folder: Path, **needs) -> ExecProfile:
    return compile_profile(
        ToolNeeds("tool", **needs), backend=sandbox.backend, isolation=sandbox.isolation, folder=str(folder)
    )


def call_of(function, folder: Path, input=None, **given) -> ToolCall:
    return ToolCall(function, (str(folder),), input, "exec_1", "step", 1, "default/exec_1/step", **given)


def setuid_program(name: str) -> str:
    return SETUID if "docker" in name else "/usr/bin/su"
