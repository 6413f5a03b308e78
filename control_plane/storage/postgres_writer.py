"""The hot path into PostgreSQL: a connection of its own, so that a batch is one round trip and waits in no pool.

Used by `control_plane.storage.database` for appends alone. Each visit is a transaction that must end where it began.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from control_plane.storage.written import Written

_T = TypeVar("_T")
_FAREWELL_S = 1.0  # a server that does not answer any more need not be told


class PostgresWriter:
    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._turn = asyncio.Lock()
        self.written = Written()  # through the present connection

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    async def visit(self, work: Callable[[Any, Written], Awaitable[_T]]) -> _T:
        """One at a time. A caller that is cancelled, or hears nothing in time, does not learn the outcome."""
        async with self._turn:
            connection = await self._opened()
            try:
                return await work(connection, self.written)
            except asyncpg.PostgresError:
                raise  # an answer: the statement is over, and the connection as good as before
            except BaseException:
                connection.terminate()
                raise

    async def _opened(self) -> Any:
        # After a restart of the server the connection is dead; asyncpg knows without asking the network.
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
            self.written = Written()
        return self._connection

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            with suppress(asyncpg.PostgresError, OSError, TimeoutError):
                await self._connection.close(timeout=_FAREWELL_S)
