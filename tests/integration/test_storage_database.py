"""Opening a database: what is refused, and that the refusal helps without giving the password away."""

import sqlite3
import traceback
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from agentflow.devstack.postgres import postgres_server
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import StorageUnavailable
from agentflow.testing import eventually
from control_plane.storage.database import UnsafeDatabase, database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.faults import DatabaseRefused, DatabaseUnreachable, UnstorableText
from control_plane.storage.migrate import upgrade

SECRET = "s3cr3t"


async def refusal(dsn: str) -> AgentFlowError:
    with pytest.raises(AgentFlowError) as raised:
        async with database(dsn) as opened:
            await upgrade(opened)
    shown = f"{raised.value!r} {raised.value}"
    assert SECRET not in shown
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert "Traceback" not in shown
    assert raised.value.hint
    return raised.value


def with_database(dsn: str, name: str, user: str = "agentflow") -> str:
    server = dsn.partition("@")[2].partition("/")[0]
    return f"postgres://{user}:{SECRET}@{server}/{name}"


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_nothing_listens_there() -> None:
    error = await refusal(f"postgres://agentflow:{SECRET}@127.0.0.1:1/main")

    assert isinstance(error, DatabaseUnreachable)
    assert "127.0.0.1:1" in error.message


async def test_the_database_does_not_exist(postgres_dsn: str) -> None:
    error = await refusal(with_database(postgres_dsn, "nowhere"))

    assert isinstance(error, DatabaseRefused)
    assert "database nowhere: it does not exist" in error.message


async def test_an_option_of_the_address_that_does_not_exist(postgres_dsn: str) -> None:
    error = await refusal(with_database(postgres_dsn, f"main?sslmode={SECRET}"))

    assert "not understood" in error.message


async def test_the_password_is_wrong(postgres_dsn: str) -> None:
    name = postgres_dsn.rpartition("/")[2]
    await execute(postgres_dsn, f"CREATE ROLE guarded_{name} LOGIN PASSWORD 'another'")
    await ask_for_passwords(postgres_dsn, name)

    error = await refusal(with_database(postgres_dsn, name, user=f"guarded_{name}"))

    assert isinstance(error, DatabaseRefused)
    assert "user or password is wrong" in error.message


async def ask_for_passwords(dsn: str, name: str) -> None:
    def add_rule(rules: Path) -> None:
        rules.write_text(f"host {name} guarded_{name} all scram-sha-256\n{rules.read_text()}")

    before = await value(dsn, "SELECT pg_conf_load_time()")
    add_rule(Path(await value(dsn, "SHOW hba_file")))
    await execute(dsn, "SELECT pg_reload_conf()")

    async def reloaded() -> bool:
        return await value(dsn, "SELECT pg_conf_load_time()") != before

    await eventually(reloaded)


async def value(dsn: str, query: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval(query))
    finally:
        await connection.close()


async def test_postgresql_that_may_lose_commits_is_refused(postgres_dsn: str) -> None:
    await execute(postgres_dsn, f"ALTER DATABASE {postgres_dsn.rpartition('/')[2]} SET synchronous_commit = off")

    error = await refusal(postgres_dsn)

    assert isinstance(error, UnsafeDatabase)
    assert "synchronous_commit is off" in error.message


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("These are notes, not a database. " * 10)

    error = await refusal(f"sqlite:///{file}")

    assert isinstance(error, DatabaseRefused)
    assert str(file) in error.message
    assert file.read_text().startswith("These are notes")


async def test_a_path_that_cannot_be_a_file(tmp_path: Path) -> None:
    assert isinstance(await refusal(f"sqlite:///{tmp_path}"), DatabaseUnreachable)

    (tmp_path / "file").touch()
    assert isinstance(await refusal(f"sqlite:///{tmp_path}/file/agentflow.db"), DatabaseUnreachable)


async def test_a_sqlite_file_is_made_with_its_folder_and_is_durable(tmp_path: Path) -> None:
    file = tmp_path / "not" / "yet" / "agentflow.db"

    async with database(f"sqlite:///{file}") as db, db.system_write() as connection:
        settings = [
            await connection.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert settings == ["wal", 2, 1]
    assert file.exists()


async def test_connections_for_reading_cannot_write_to_sqlite(tmp_path: Path) -> None:
    async with database(f"sqlite:///{tmp_path}/agentflow.db") as db:
        with pytest.raises(StorageUnavailable, match="readonly"):
            async with db.system_read() as connection:
                await connection.execute(text("CREATE TABLE t (x INTEGER)"))


async def test_reading_goes_on_while_a_transaction_is_open(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.system_write() as connection:
            await connection.execute(text("DELETE FROM workflows"))

            assert await db.answers()


async def test_a_file_locked_by_another_program_is_told_as_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.storage.database.DATABASE_CONNECT_S", 0.05)
    async with database(f"sqlite:///{tmp_path}/agentflow.db") as db:
        await upgrade(db)
        rival = sqlite3.connect(tmp_path / "agentflow.db", isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StorageUnavailable, match="locked"):
                async with db.system_write():
                    pass
        finally:
            rival.close()
        async with db.system_write():
            pass


async def test_text_that_no_database_can_hold_is_the_callers_fault(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)

        with pytest.raises(UnstorableText):
            await SqlEventStore(db).read(TenantId("acme"), ExecutionId("exec_\ud800"))


async def test_dropped_connections_are_replaced_and_a_dead_server_is_noticed(tmp_path: Path) -> None:
    async with postgres_server(tmp_path) as server, database(server.dsn) as db:
        await upgrade(db)
        assert await db.answers()
        await execute(
            server.dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'agentflow'",
        )

        await eventually(db.answers)

        store = SqlEventStore(db)
        server.process.kill()
        await server.process.wait()
        assert not await db.answers()
        with pytest.raises(StorageUnavailable):
            await store.load(ExecutionId("exec_1"))
