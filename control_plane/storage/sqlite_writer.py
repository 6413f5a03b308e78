"""The hot path into SQLite: one thread with a connection of its own, so that a batch is one visit and not five.

Used by `control_plane.storage.database` for appends alone. Each visit is a transaction that must end where it began.
The thread is fed by a plain queue: an executor's bookkeeping took a tenth of a small commit.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from control_plane.storage.written import Written

_T = TypeVar("_T")
_Errand = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class SqliteWriter:
    def __init__(self, path: Path, *, pragmas: tuple[str, ...], timeout_s: float) -> None:
        self._path = path
        self._pragmas = pragmas
        self._timeout_s = timeout_s
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None  # belongs to the thread
        self._visits = 0
        self.written = Written()  # through the connection; there is one

    @property
    def busy(self) -> bool:
        return self._visits > 0

    async def visit(self, work: Callable[[sqlite3.Connection, Written], _T]) -> _T:
        """Run `work` in the thread. A caller that is cancelled does not learn the outcome; the next visit waits."""
        self._visits += 1
        try:
            return await self._sent(lambda: work(self._opened(), self.written))
        finally:
            self._visits -= 1

    async def _sent(self, work: Callable[[], _T]) -> _T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_T] = loop.create_future()
        self._errands.put((work, outcome, loop))
        return await outcome

    def _serve(self) -> None:
        while (errand := self._errands.get()) is not None:
            work, outcome, loop = errand
            try:
                result, error = work(), None
            except BaseException as raised:  # noqa: BLE001 - the caller's, not the thread's
                result, error = None, raised
            loop.call_soon_threadsafe(_settle, outcome, result, error)
            del errand, work, outcome, result, error  # nothing of a batch is held while waiting for the next

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

        if self._thread is not None:
            await self._sent(close)
            self._errands.put(None)
            self._thread.join()
            self._thread = None


def _settle(outcome: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if outcome.cancelled():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
