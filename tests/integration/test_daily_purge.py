"""The daily purge beside PostgreSQL is a process of its own: it fails in words and never outlives its control plane."""

import asyncio
import os
import signal
import sys

import psutil
import pytest
from sqlalchemy import text

from agentflow.settings import inherited_environment
from agentflow.testing import eventually
from control_plane.daily_purge import PurgeEnded, in_a_process_of_its_own
from control_plane.storage.database import database
from control_plane.storage.migrate import upgrade

A_CONTROL_PLANE = (
    "import asyncio, os; from control_plane.daily_purge import in_a_process_of_its_own; "
    "asyncio.run(in_a_process_of_its_own(dict(os.environ)))"
)


def settings(dsn: str, home: object) -> dict[str, str]:
    return inherited_environment() | {"AF_DB_DSN": dsn, "AF_HOME": str(home), "AF_CONFIG_FILE": os.devnull}


async def test_a_purge_that_cannot_run_says_so(tmp_path) -> None:
    with pytest.raises(PurgeEnded, match="exit code 2"):
        await in_a_process_of_its_own(settings("nonsense://", tmp_path))


async def test_a_purge_ends_when_its_control_plane_is_killed(postgres_dsn: str, tmp_path) -> None:
    async with database(postgres_dsn) as db:
        await upgrade(db)
        async with db.owning() as held:
            await held.execute(text("LOCK TABLE executions IN ACCESS EXCLUSIVE MODE"))  # the purge waits for us
            parent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", A_CONTROL_PLANE), env=settings(postgres_dsn, tmp_path)
            )
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'executions'::regclass")

            async def waits() -> bool:
                return bool(await held.scalar(waiting))

            await eventually(waits, within_s=30)
            (purge,) = psutil.Process(parent.pid).children()

            parent.send_signal(signal.SIGKILL)
            await parent.wait()

            await eventually(lambda: not purge.is_running() or purge.status() == psutil.STATUS_ZOMBIE, within_s=10)
