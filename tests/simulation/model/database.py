"""The real storage over a database in memory: its SQL, its checks and its snapshots are those of the product.

Stands in for `control_plane.storage.database.Database`, one for each process. What lies between a process and its
database is simulated: every transaction may be refused before it began, or be committed and its answer lost; it may
take long; and the process may die on either side of the commit.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from agentflow.ids import TenantId
from agentflow.ports import StorageUnavailable
from control_plane.storage.faults import translated
from control_plane.storage.tables import metadata
from control_plane.storage.written import Written
from tests.simulation.model.chance import Fates
from tests.simulation.model.loop import SimulatedLoop

T = TypeVar("T")

_JULIAN_EPOCH = 2440587.5
_DAY_S = 86_400
_MEMORY = "file:agentflow-simulation?mode=memory&cache=shared"


class Server:
    """The one database of a day. Made once for many days: a new one begins with `wipe`."""

    def __init__(self) -> None:
        self._opened: list[sqlite3.Connection] = []
        self._driver = self.connect()
        engine = create_engine("sqlite://", creator=lambda: self._driver, poolclass=StaticPool)
        metadata.create_all(engine)
        self.connection: Connection = engine.connect()
        tables = [name for (name,) in self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._empty = ";".join(f"DELETE FROM {name}" for name in (*tables, "sqlite_sequence"))

    def connect(self) -> sqlite3.Connection:
        """Another connection to the same memory: what one has changed, another can tell."""
        self._opened.append(sqlite3.connect(_MEMORY, uri=True, isolation_level=None, check_same_thread=False))
        return self._opened[-1]

    def wipe(self, now_s: Callable[[], float]) -> None:
        while (
            len(self._opened) > 1
        ):  # of the day before; while it lasted, a commit might come later than its sender's end
            self._opened.pop().close()
        self._driver.executescript(self._empty)
        # Leases are by the database's clock.
        self._driver.create_function("julianday", 1, lambda _: _JULIAN_EPOCH + now_s() / _DAY_S)

    @property
    def driver(self) -> sqlite3.Connection:
        return self._driver


class _Line:
    """An AsyncConnection, as far as the repositories use one. Nothing in it waits: a transaction is one step."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(self, *args: Any) -> Any:
        return self._connection.execute(*args)

    async def scalars(self, *args: Any) -> Any:
        return self._connection.scalars(*args)

    async def scalar(self, *args: Any) -> Any:
        return self._connection.scalar(*args)


class SimulatedDatabase:
    engine = "sqlite"
    shown = "a simulated database"

    def __init__(self, server: Server, loop: SimulatedLoop, fates: Fates) -> None:
        self._server = server
        self._loop = loop
        self._fates = fates
        self._appender = server.connect()
        self._visits = 0
        self.written = Written()
        self.is_cut = False

    @property
    def appending(self) -> bool:
        return self._visits > 0

    async def append(self, *, postgresql: Any, sqlite: Callable[[sqlite3.Connection, Written], T]) -> T:
        """The commit itself happens at the server: also when whoever asked for it has died since."""
        answered: Any = self._loop.create_future()
        fate = self._fate()

        def commit() -> None:
            try:
                written = sqlite(self._appender, self.written)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is for whoever asked
                self._loop.outside(_refuse, answered, error, after_s=self._fates.delay_s())
                return
            if fate == "unanswered":
                self.written = Written()  # with the connection goes what was known of it
                self._loop.outside(_refuse, answered, StorageUnavailable("the answer was lost"))
            else:
                self._loop.outside(_answer, answered, written, after_s=self._fates.delay_s())

        if fate == "refused":
            self._loop.outside(_refuse, answered, StorageUnavailable("it is away"), after_s=self._fates.delay_s())
        else:
            self._loop.outside(commit, after_s=self._fates.commit_s())
        self._visits += 1
        try:
            async with translated():
                result: T = await answered
        finally:
            self._visits -= 1
        return result

    @asynccontextmanager
    async def system_read(self) -> AsyncIterator[Any]:
        await self._travel()
        if self._fate() != "done":
            raise StorageUnavailable("it is away")
        yield _Line(self._server.connection)

    @asynccontextmanager
    async def system_write(self) -> AsyncIterator[Any]:
        await self._travel()
        fate = self._fate()
        if fate == "refused":
            raise StorageUnavailable("it is away")
        yield _Line(self._server.connection)
        await self._travel()
        if fate == "unanswered":
            raise StorageUnavailable("the answer was lost")

    system_statement = system_write  # a transaction is one step here

    @asynccontextmanager
    async def read(self, tenant: TenantId) -> AsyncIterator[Any]:
        async with self.system_read() as connection:
            yield connection

    @asynccontextmanager
    async def write(self, tenant: TenantId, *, on_record: bool = True) -> AsyncIterator[Any]:
        async with self.system_write() as connection:
            yield connection

    async def _travel(self) -> None:
        arrived: Any = self._loop.create_future()
        self._loop.outside(_answer, arrived, None, after_s=self._fates.delay_s())
        await arrived

    def _fate(self) -> str:
        return "refused" if self.is_cut else self._fates.of_a_transaction()


def _answer(answered: Any, value: Any) -> None:
    if not answered.done():
        answered.set_result(value)


def _refuse(answered: Any, error: Exception) -> None:
    if not answered.done():
        answered.set_exception(error)
