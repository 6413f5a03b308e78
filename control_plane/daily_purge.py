"""The purge that a control plane runs once a day: beside PostgreSQL in a process of its own, at a low priority.

A purge goes through very many ids, and in our own process every pause that this makes would hold up all decisions.
Under SQLite it stays here: there whoever writes waits for their turn, and another process would know of no turns.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.limits import PURGE_NICE
from control_plane.storage.database import Database
from control_plane.storage.retention import RetentionJob

ALONG = "--with-parent"
COMMAND = ("upkeep", "retention-run", ALONG)


class PurgeEnded(Unavailable):
    code = "AF1622"

    def __init__(self, exit_code: int) -> None:
        super().__init__(
            f"The purge ended with exit code {exit_code} before all was removed.",
            hint="Its own words are in the log before this line. What is left goes with the next run, tomorrow or by "
            "`af retention run`.",
        )


def daily_purge(
    database: Database, job: RetentionJob, clock: Clock, environment: Mapping[str, str]
) -> Callable[[], Awaitable[object]]:
    """`environment` gives a child the settings that `job` was made with."""
    if database.engine == "sqlite":
        return lambda: job.run(clock.now_ms())
    return partial(in_a_process_of_its_own, environment)


async def in_a_process_of_its_own(environment: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
    """Until it ends. It ends with us: when this is cancelled, and also when we are killed."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "control_plane", *command),
        stdin=asyncio.subprocess.PIPE,  # only we hold the other end: see `end_with_parent`
        stdout=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        exit_code = await child.wait()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    if exit_code != 0:
        raise PurgeEnded(exit_code)


def end_with_parent() -> None:
    """In the child: give way to everybody, and end when the pipe to our parent closes. The server rolls back."""
    os.nice(PURGE_NICE)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), signal.raise_signal, signal.SIGTERM)
