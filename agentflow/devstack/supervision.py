"""Keeping a child alive: whatever ends without being told to is started again, later each time it fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentflow.devstack.process import ChildProcess
from agentflow.errors import AgentFlowError

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 10.0
_STEADY_AFTER_S = 30.0  # one that lived this long is not in a crash loop, so its next restart is quick again


@dataclass(frozen=True, slots=True)
class Exit:
    """A child ended, or could not be started again; either way it is tried again in `restart_in_s`."""

    name: str
    reason: str
    restart_in_s: float
    log: Path


OnExit = Callable[[Exit], None]


class Supervised:
    """The child that runs now under this name; `pid` changes with each restart."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def log(self) -> Path:
        return self.process.log

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL what runs now; supervision will start another."""
        self.process.kill()


@asynccontextmanager
async def supervised(
    start: Callable[[], Awaitable[ChildProcess]], on_exit: OnExit | None = None
) -> AsyncIterator[Supervised]:
    """Start a child, keep it alive for the length of the block, and stop it at the end.

    Only restarts are tried again: a child that cannot be started at all fails the block with its reason.
    """
    child = Supervised(await start())
    watching = asyncio.create_task(_keep_alive(child, start, on_exit), name=f"keep {child.name} alive")
    try:
        yield child
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await child.process.stop()
    if not watching.cancelled():
        watching.result()  # it never ends by itself, so this raises what went wrong in it


async def _keep_alive(child: Supervised, start: Callable[[], Awaitable[ChildProcess]], on_exit: OnExit | None) -> None:
    now = asyncio.get_running_loop().time
    backoff_s = _FIRST_BACKOFF_S
    while True:
        started = now()
        code = await child.process.wait()
        if now() - started > _STEADY_AFTER_S:
            backoff_s = _FIRST_BACKOFF_S
        reason: str | None = f"ended with exit code {code}"
        while reason is not None:
            if on_exit is not None:
                on_exit(Exit(child.name, reason, backoff_s, child.log))
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _LONGEST_BACKOFF_S)
            try:
                child.process = await start()
                reason = None
            except (AgentFlowError, OSError) as problem:
                reason = str(problem)
