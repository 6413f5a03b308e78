"""However we die, the servers we started die too."""

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from agentflow.devstack.postgres import postgres_server
from agentflow.testing import eventually

REPOSITORY = Path(__file__).parents[2]

PLATFORM = """
import asyncio, sys
from pathlib import Path
from agentflow.devstack.nats import nats_server
from agentflow.devstack.postgres import postgres_server

async def main(directory):
    async with nats_server(directory / "nats") as nats, postgres_server(directory / "postgres") as postgres:
        servers = (nats.process, postgres.process)
        print(*(pid for server in servers for pid in (server.pid, server.guard_pid)), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


def _is_gone(process: psutil.Process) -> bool:
    # An orphan that has ended stays a zombie where nobody reaps, as in a container without an init.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_no_server_outlives_the_process_that_started_it(tmp_path: Path, death: signal.Signals) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PLATFORM, str(tmp_path)),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    named = [psutil.Process(int(pid)) for pid in (await parent.stdout.readline()).split()]
    family = [*named, *psutil.Process(parent.pid).children(recursive=True)]
    assert len(named) == 4

    parent.send_signal(death)
    await parent.wait()

    await eventually(lambda: all(_is_gone(process) for process in family), within_s=10)


async def test_killing_its_guard_ends_postgres_and_all_its_processes(tmp_path: Path) -> None:
    async with postgres_server(tmp_path) as server:
        guard = psutil.Process(server.process.guard_pid)
        family = guard.children(recursive=True)
        assert len(family) > 3, "the server and its background processes"

        guard.kill()

        await eventually(lambda: all(_is_gone(process) for process in family), within_s=10)
