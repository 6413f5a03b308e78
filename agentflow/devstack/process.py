"""One server as a guarded child process: started, known to be ready, stopped, and never left behind.

Its output goes to a file, which nobody has to drain and everybody can read afterwards. Restarting is not decided
here: see `supervision`.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from agentflow.devstack import guard
from agentflow.errors import Unavailable

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05
_LINES_SHOWN = 20


class ServerDidNotStart(Unavailable):
    code = "AF2201"

    def __init__(self, message: str, *, hint: str, output: str, exit_code: int | None) -> None:
        super().__init__(message, hint=hint)
        self.output = output
        self.exit_code = exit_code


class ChildProcess:
    """A running server. `pid` is the server's own, not the guard's."""

    def __init__(self, name: str, log: Path, log_start: int, guarding: asyncio.subprocess.Process) -> None:
        self.name = name
        self.log = log
        self.pid = 0
        self.ready_match: re.Match[str] | None = None
        self._log_start = log_start
        self._guard = guarding

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: re.Pattern[str] | None = None,
        ready_within_s: float = 15.0,
        unprivileged: bool = False,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace_s: float = 10.0,
        held: Sequence[int] = (),
    ) -> Self:
        """Start `argv` and return once its output has matched `ready`.

        `env` is the whole environment (None: ours). `held` are file descriptors that stay open as long as the child
        lives, such as a lock. `grace_s` is what the child gets between `stop_signal` and SIGKILL, also when we die.
        """
        options = ["--unprivileged"] if unprivileged else []
        with _opened_for_append(log) as sink:
            log_start = sink.seek(0, os.SEEK_END)
            guarding = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guard.__file__, *options, str(int(stop_signal)), str(grace_s), *argv),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env=env,
                cwd=cwd,
                start_new_session=True,
                pass_fds=held,
            )
        child = cls(name, log, log_start, guarding)
        deadline = asyncio.timeout(ready_within_s)
        try:
            async with deadline:
                await child._learn_pid()
                if ready is not None:
                    child.ready_match = await child._become_ready(ready)
        except BaseException as problem:
            await child.stop(grace_s=1.0)
            if isinstance(problem, TimeoutError) and deadline.expired():
                raise child.did_not_start(f"was not ready within {ready_within_s:g} s") from None
            raise
        return child

    @property
    def guard_pid(self) -> int:
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; 128 + N when signal N ended it."""
        return self._guard.returncode

    def output(self) -> str:
        """What this process, not an earlier one with the same log, has printed so far."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    async def stop(self, grace_s: float | None = None) -> int:
        """Stop it in good order, by force after the grace period. Stopping what has ended already is no error."""
        pipe = self._guard.stdin
        assert pipe is not None
        if self.exit_code is None and not pipe.is_closing():
            if grace_s is not None:
                pipe.write(str(grace_s).encode())
            pipe.close()
        return await self.wait()

    def kill(self) -> None:
        """SIGKILL to the server itself: the crash that fault tests need."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        return await self._guard.wait()

    async def _learn_pid(self) -> None:
        assert self._guard.stdout is not None
        line = await self._guard.stdout.readline()
        if not line:
            await self.wait()
            raise self.did_not_start("could not be guarded")
        self.pid = int(line)

    async def _become_ready(self, ready: re.Pattern[str]) -> re.Match[str]:
        pause_s = _FIRST_PAUSE_S
        while True:
            ended = self.exit_code is not None  # asked before reading, so that its last words are read
            match = ready.search(self.output())
            if ended:
                raise self.did_not_start(f"ended with exit code {self.exit_code} before it was ready")
            if match:
                return match
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def did_not_start(self, what: str) -> ServerDidNotStart:
        output = self.output()
        lines = output.rstrip().splitlines()[-_LINES_SHOWN:] or ["(it printed nothing)"]
        return ServerDidNotStart(
            "\n".join([f"{self.name} {what}. It said:", *(f"  | {line}" for line in lines)]),
            hint=f"mend what its last lines name, and start it again; its whole log is {self.log}",
            output=output,
            exit_code=self.exit_code,
        )


def _opened_for_append(log: Path) -> BinaryIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")
