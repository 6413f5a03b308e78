"""The hot path into SQLite: one thread with a connection of its own, so that a batch is one visit and not five.

Used by `control_plane.storage.database` for appends alone. Each visit is a transaction that must end where it began.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


class SqliteWriter:
    def __init__(self, path: Path, *, pragmas: tuple[str, ...], timeout_s: float) -> None:
        self._path = path
        self._pragmas = pragmas
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-writer")
        self._connection: sqlite3.Connection | None = None  # belongs to the thread

    async def visit(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` in the thread. A caller that is cancelled does not learn the outcome; the next visit waits."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._opened()))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None)
            for pragma in self._pragmas:
                self._connection.execute(f"PRAGMA {pragma}")
        return self._connection

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                self._connection.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown()
