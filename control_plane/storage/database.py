"""An open database that has proved to be durable: connections to read with, and transactions to write in.

Made by the composition root and used by the repositories beside it. There are three ways in: for one tenant
(`read`, `write`), for the control plane's own work across tenants (`system_…`, `append`), and as
the owner of the tables (`owning`: migrations only). Under PostgreSQL each has connections of its own with the role
that fits (see `control_plane.storage.roles`), so no list somebody asks for can delay a commit; under SQLite whoever
writes waits for their turn.
"""

import asyncio
import sqlite3
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import asyncpg
import msgspec
from sqlalchemy import URL, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from agentflow.errors import Rejected
from agentflow.ids import TenantId
from agentflow.limits import (
    DATABASE_ANSWER_S,
    DATABASE_CONNECT_S,
    DATABASE_IDLE_S,
    DATABASE_PROBE_S,
    DATABASE_READERS_MAX,
    DATABASE_SYSTEM_READERS_MAX,
    DATABASE_WRITERS_MAX,
)
from agentflow.ports import StorageUnavailable
from control_plane.storage.address import Address, BadDatabaseAddress, PostgresAddress, SqliteAddress, parse_address
from control_plane.storage.faults import opening, translated
from control_plane.storage.on_record import notice_changes, put_on_record, watch_changes
from control_plane.storage.postgres_writer import PostgresWriter
from control_plane.storage.roles import ACT_FOR, SYSTEM_ROLE, TENANT_ROLE, named, take_on
from control_plane.storage.sqlite_writer import SqliteWriter
from control_plane.storage.written import Written

_T = TypeVar("_T")
EngineName = Literal["sqlite", "postgresql"]

# What must hold for a committed event to survive a power cut: each setting and its safe values.
_DURABLE: dict[EngineName, dict[str, frozenset[str]]] = {
    "sqlite": {"journal_mode": frozenset({"wal"}), "synchronous": frozenset({"2", "3"})},
    "postgresql": {
        "fsync": frozenset({"on"}),
        "full_page_writes": frozenset({"on"}),
        "synchronous_commit": frozenset({"on", "local", "remote_write", "remote_apply"}),
    },
}

_SHARED: dict[str, Any] = {
    "max_overflow": 0,
    "pool_timeout": DATABASE_ANSWER_S,
    "hide_parameters": True,  # values of users have no place in messages
    "json_serializer": lambda value: msgspec.json.encode(value).decode(),
    "json_deserializer": msgspec.json.decode,
}


class UnsafeDatabase(Rejected):
    code = "AF1204"

    def __init__(self, shown: str, faults: list[str]) -> None:
        super().__init__(
            f"Refusing {shown}: it may lose what it has confirmed ({'; '.join(faults)}).",
            hint="Give it durable settings: PostgreSQL with its defaults, SQLite on a local disk.",
        )


class _Pools(msgspec.Struct, frozen=True):
    """Under SQLite some of them are one and the same."""

    tenant_readers: AsyncEngine
    tenant_writers: AsyncEngine
    system_readers: AsyncEngine
    system_writers: AsyncEngine
    logins: AsyncEngine  # as whoever logs in, before any role is taken on
    owners: AsyncEngine
    appender: SqliteWriter | PostgresWriter

    async def dispose(self) -> None:
        for field in self.__struct_fields__:
            pool = getattr(self, field)
            if isinstance(pool, AsyncEngine):
                await pool.dispose()
        await self.appender.close()


class Database:
    def __init__(self, *, engine: EngineName, shown: str, pools: _Pools) -> None:
        self.engine: EngineName = engine
        self.shown = shown
        self._pools = pools
        # SQLite lets one write at a time, and makes the others try again in a while: here they queue instead.
        self._turn: AbstractAsyncContextManager[Any] = asyncio.Lock() if engine == "sqlite" else nullcontext()

    @asynccontextmanager
    async def read(self, tenant: TenantId) -> AsyncIterator[AsyncConnection]:
        """For one tenant. Under PostgreSQL rows of others are not there, whatever is asked."""
        async with translated(), self._pools.tenant_readers.connect() as connection:
            await self._act_for(tenant, connection)
            yield connection

    @asynccontextmanager
    async def write(self, tenant: TenantId, *, on_record: bool = True) -> AsyncIterator[AsyncConnection]:
        """One transaction for one tenant: committed when the block ends, rolled back when it raises.

        The first of a request that changes anything takes its audit note along, unless it is not yet what the
        request is about.
        """
        noted = None
        async with translated(), self._turn, self._pools.tenant_writers.begin() as connection:
            await self._act_for(tenant, connection)
            watch_changes(connection)
            yield connection
            if on_record:
                noted = await put_on_record(connection, tenant)
        if noted is not None:
            noted.written = True

    @asynccontextmanager
    async def system_read(self) -> AsyncIterator[AsyncConnection]:
        """Across tenants, for what the control plane itself must know; never for what a caller asked."""
        async with translated(), self._pools.system_readers.connect() as connection:
            yield connection

    @asynccontextmanager
    async def system_write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction across tenants, for the control plane's own work."""
        noted = None
        async with translated(), self._turn, self._pools.system_writers.begin() as connection:
            watch_changes(connection)
            yield connection
            noted = await put_on_record(connection, None)
        if noted is not None:
            noted.written = True

    @asynccontextmanager
    async def system_statement(self) -> AsyncIterator[AsyncConnection]:
        """Each statement is committed by itself, also when we stand still before its answer: it keeps no row locked."""
        if self.engine == "sqlite":
            async with self.system_write() as connection:
                yield connection
            return
        at_once = self._pools.system_writers.execution_options(isolation_level="AUTOCOMMIT")
        async with translated(), at_once.connect() as connection:
            yield connection

    @asynccontextmanager
    async def owning(self) -> AsyncIterator[AsyncConnection]:
        """One transaction as the role that owns the tables. Only what changes the schema may need it."""
        async with translated(), self._turn, self._pools.owners.begin() as connection:
            yield connection

    @property
    def appending(self) -> bool:
        return self._pools.appender.busy

    @property
    def written(self) -> Written:
        """What appends have committed through the connection that they use now."""
        return self._pools.appender.written

    async def append(
        self,
        *,
        postgresql: Callable[[Any, Written], Awaitable[_T]],
        sqlite: Callable[[sqlite3.Connection, Written], _T],
    ) -> _T:
        """A transaction of the system's own, by the fastest way each driver has: asyncpg itself, or SQLite's thread.

        Whichever is called leaves no transaction open.
        """
        async with translated():
            if isinstance(self._pools.appender, PostgresWriter):
                return await self._pools.appender.visit(postgresql)
            async with self._turn:
                return await self._pools.appender.visit(sqlite)

    async def answers(self) -> bool:
        """Whether it can be asked right now."""
        try:
            async with asyncio.timeout(DATABASE_PROBE_S), self.system_read() as connection:
                await connection.execute(text("SELECT 1"))
        except (StorageUnavailable, TimeoutError):
            return False
        return True

    async def _act_for(self, tenant: TenantId, connection: AsyncConnection) -> None:
        parameters = named(tenant)
        if self.engine == "postgresql":
            await connection.execute(text(ACT_FOR), parameters)


@asynccontextmanager
async def database(
    dsn: str, *, migrate_dsn: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Database]:
    """Open what `dsn` names, or say in one sentence why not.

    `migrate_dsn` is the same PostgreSQL database for a user who owns the tables, where `dsn`'s user does not.
    """
    address = parse_address(dsn, tls)
    owner = address if migrate_dsn is None else parse_address(migrate_dsn, tls)
    async with opening(address):
        if isinstance(address, SqliteAddress):
            await _make_file_in_turn(address.path)
            pools = _sqlite(address)
        else:
            pools = _postgres(address, owner)
    try:
        async with opening(address), pools.logins.connect() as connection:
            faults = durability_faults(address.engine, await _durability(address.engine, connection))
        if faults:
            raise UnsafeDatabase(address.shown, faults)
        yield Database(engine=address.engine, shown=address.shown, pools=pools)
    finally:
        await pools.dispose()


def durability_faults(engine: EngineName, settings: Mapping[str, str]) -> list[str]:
    return [f"{name} is {settings[name]}" for name, safe in _DURABLE[engine].items() if settings[name] not in safe]


async def _durability(engine: EngineName, connection: AsyncConnection) -> dict[str, str]:
    ask = "PRAGMA" if engine == "sqlite" else "SHOW"
    return {name: str(await connection.scalar(text(f"{ask} {name}"))) for name in _DURABLE[engine]}


async def _make_file_in_turn(path: Path) -> None:
    """Of several that start on a new file at once, SQLite turns away those that come while one changes its mode."""
    pause_s = 0.05
    for _ in range(int(DATABASE_CONNECT_S / pause_s)):
        try:
            return await asyncio.to_thread(_make_file, path)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            await asyncio.sleep(pause_s)
    return await asyncio.to_thread(_make_file, path)


def _make_file(path: Path) -> None:
    """Learn here whether the file can be used: aiosqlite leaves a thread behind when it cannot open one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=DATABASE_CONNECT_S)) as connection:
        # Before the first table, or never: pages that a purge frees can be given back without rewriting the file.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")  # a property of the file, so once is enough


def _sqlite(address: SqliteAddress) -> _Pools:
    url = URL.create("sqlite+aiosqlite", database=str(address.path))
    # Without an isolation level the driver leaves transactions to us.
    options = {"timeout": DATABASE_CONNECT_S, "isolation_level": None}
    writer = create_async_engine(url, pool_size=1, connect_args=options, **_SHARED)
    readers = create_async_engine(url, pool_size=DATABASE_READERS_MAX, connect_args=options, **_SHARED)

    # fullfsync matters on macOS only, where a plain fsync stops at the drive's own cache.
    durable = ("synchronous=FULL", "fullfsync=ON", "foreign_keys=ON")
    _on_connect(writer, durable)
    notice_changes(writer.sync_engine)
    _on_connect(readers, ("query_only=ON",))

    @event.listens_for(writer.sync_engine, "begin")
    def begin_immediate(connection: Any) -> None:
        # Take the write lock at once: a transaction that reads first and writes later can fail half way.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return _Pools(
        tenant_readers=readers,
        tenant_writers=writer,
        system_readers=readers,
        system_writers=writer,
        logins=writer,
        owners=writer,
        appender=SqliteWriter(address.path, pragmas=durable, timeout_s=DATABASE_CONNECT_S),
    )


def _on_connect(engine: AsyncEngine, pragmas: tuple[str, ...]) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()


def _postgres(address: PostgresAddress, owner: Address) -> _Pools:
    if not isinstance(owner, PostgresAddress):
        raise BadDatabaseAddress("AF_DB_MIGRATE_DSN names another kind of database than AF_DB_DSN")
    # Writers look up single rows by key, so one plan is right for ever; planning anew took a fifth of a small commit.
    # Without scans in it: a plan made while a table was small would go on scanning it when it has grown.
    one_plan = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off"
    tenants = _postgres_pool(address, DATABASE_READERS_MAX, TENANT_ROLE)
    logins = _postgres_pool(address, 1)
    return _Pools(
        tenant_readers=tenants,
        tenant_writers=tenants,
        system_readers=_postgres_pool(address, DATABASE_SYSTEM_READERS_MAX, SYSTEM_ROLE),
        system_writers=_postgres_pool(address, DATABASE_WRITERS_MAX, SYSTEM_ROLE, one_plan),
        logins=logins,
        owners=logins if owner == address else _postgres_pool(owner, 1),
        appender=PostgresWriter(partial(_connected, address, SYSTEM_ROLE, one_plan)),
    )


# A process that stands still, or is cut off, in the middle of a transaction must not keep others out for longer.
_LETS_GO = {"idle_in_transaction_session_timeout": f"{DATABASE_IDLE_S:g}s"}


async def _connected(address: PostgresAddress, role: str = "", on_connect: str = "") -> Any:
    # asyncpg reads the address itself, so everything libpq users write (sslmode, several hosts, sockets) works.
    connection = await asyncpg.connect(
        address.dsn,
        timeout=DATABASE_CONNECT_S,
        command_timeout=DATABASE_ANSWER_S,
        server_settings={"application_name": "agentflow"} | (_LETS_GO if role else {}),
        **({} if address.tls is None else {"ssl": address.tls}),
    )
    try:
        if on_connect:
            await connection.execute(on_connect)
        if role:
            await take_on(connection, role, address.shown)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _postgres_pool(address: PostgresAddress, size: int, role: str = "", on_connect: str = "") -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=partial(_connected, address, role, on_connect),
        pool_size=size,
        **_SHARED,
    )

    notice_changes(engine.sync_engine)

    @event.listens_for(engine.sync_engine, "checkout")
    def refuse_dead_connections(connection: Any, _entry: ConnectionPoolEntry, _proxy: Any) -> None:
        # After a restart of the server every pooled connection is dead; asyncpg knows without asking the network.
        if connection.driver_connection.is_closed():
            raise DisconnectionError

    return engine
