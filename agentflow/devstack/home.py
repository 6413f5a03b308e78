"""The directory an embedded platform lives in, and the lock that keeps two from living in the same one."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentflow.errors import Conflict


class HomeInUse(Conflict):
    code = "AF2203"


@dataclass(frozen=True, slots=True)
class Home:
    """Give `lock`, a file descriptor, to every child: the lock then lasts until the last of them is gone.

    So nobody moves in while the servers of a platform that was killed are still closing their files.
    """

    directory: Path
    lock: int

    def log_of(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"


@contextmanager
def locked_home(directory: Path) -> Iterator[Home]:
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
            raise HomeInUse(
                f"another platform (process {owner}) is using {directory}",
                hint="stop it (one that was killed needs some seconds to close), or set AF_HOME to another directory",
            ) from None
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield Home(directory, lock)
    finally:
        os.close(lock)
