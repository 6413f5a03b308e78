"""The schema: migrations lead to the tables, one of many processes migrates, a newer schema is refused."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agentflow.errors import AgentFlowError
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import SchemaTooNew, UnknownRevision, differences, downgrade, revisions, upgrade
from control_plane.storage.migrations import versions
from control_plane.storage.tables import metadata

VERSIONS = sorted(path.name[1:5] for path in Path(versions.__path__[0]).glob("v*.py"))
NEWEST = "0018"

# How each engine itself describes a schema: constraints, partial indexes and identity included.
DESCRIPTION = {
    "sqlite": """
        SELECT name, sql FROM sqlite_master
        WHERE tbl_name NOT LIKE 'alembic%' AND tbl_name NOT LIKE 'sqlite%' ORDER BY name
    """,
    "postgresql": """
        WITH ours AS (
            SELECT oid, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
            AND relkind IN ('r', 'p') AND relname <> 'alembic_version' AND NOT relispartition)
        SELECT table_name || '.' || column_name,
               data_type || is_nullable || coalesce(identity_generation, '') || coalesce(collation_name, '')
        FROM information_schema.columns JOIN ours ON relname = table_name
        UNION ALL
        SELECT indexname, indexdef FROM pg_indexes JOIN ours ON relname = tablename
        UNION ALL
        SELECT conname, pg_get_constraintdef(c.oid) FROM pg_constraint AS c JOIN ours ON ours.oid = conrelid
        WHERE contype <> 'n'  -- columns say whether they may be empty
        UNION ALL
        SELECT relname, pg_get_partkeydef(oid) FROM ours
        ORDER BY 1, 2
    """,
}


async def description(db: Database) -> list[Any]:
    """To the letter, but for the white space that SQLite leaves out where a column was added."""

    def evenly(value: Any) -> Any:
        return re.sub(r"\s+", " ", value) if isinstance(value, str) else value

    async with db.owning() as connection:
        return [tuple(map(evenly, row)) for row in await connection.execute(text(DESCRIPTION[db.engine]))]


async def test_migrations_lead_to_the_tables_in_the_code(database_dsn: str) -> None:
    def made_anew(connection: Connection) -> None:
        metadata.drop_all(connection)
        metadata.create_all(connection)

    async with database(database_dsn) as db:
        await upgrade(db)
        assert await differences(db) == []
        migrated = await description(db)
        async with db.owning() as connection:
            await connection.run_sync(made_anew)

        assert migrated == await description(db)
        assert len(migrated) > 5


async def test_processes_that_start_at_once_migrate_once(database_dsn: str) -> None:
    async def start() -> None:
        async with database(database_dsn) as db:
            await upgrade(db)
            async with db.owning() as connection:
                await connection.execute(
                    text("INSERT INTO workflows VALUES (:id, 't', :id, '1', 'd', 'fsm', '', '{}', NULL, 1)"),
                    {"id": str(id(db))},
                )

    await asyncio.gather(*(start() for _ in range(5)))

    async with database(database_dsn) as db, db.owning() as connection:
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).all() == [(NEWEST,)]
        assert await connection.scalar(text("SELECT count(*) FROM workflows")) == 5  # nobody's tables were made anew


async def test_a_schema_from_a_newer_release_is_refused_and_left_alone(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.owning() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        before = await description(db)

        with pytest.raises(SchemaTooNew, match=rf"revision 9999.*newest is {NEWEST}"):
            await upgrade(db)

        assert await description(db) == before


async def test_a_migration_that_fails_leaves_nothing_behind(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        async with db.owning() as connection:
            await connection.execute(text("CREATE TABLE event_store (x INTEGER)"))
        before = await description(db)

        with pytest.raises(AgentFlowError, match="event_store"):
            await upgrade(db)

        assert await description(db) == before


async def rows(db: Database) -> list[Any]:
    event = "position, tenant_id, execution_id, version, event_type, CAST(event_data AS TEXT), created_at_ms"
    queries = (
        "SELECT id, tenant_id, status, shard, started_at_ms, ended_at_ms FROM executions ORDER BY id",
        f"SELECT {event} FROM event_store ORDER BY position",
        "SELECT id, name, version, digest, created_at_ms FROM workflows ORDER BY id",
    )
    async with db.owning() as connection:
        return [tuple(row) for query in queries for row in await connection.execute(text(query))]


async def test_going_down_and_up_again_step_by_step_keeps_what_was_stored(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.owning() as connection:
            await connection.execute(
                text("INSERT INTO workflows VALUES ('wf_1', 't', 'w', '1', 'd', 'fsm', 'y', '{}', NULL, 1)")
            )
            await connection.execute(
                text("INSERT INTO executions VALUES ('exec_1', 't', 'wf_1', 'w', '1', 'running', 3, 'tr', 5, NULL)")
            )
            for version in (1, 2, 3):
                await connection.execute(
                    text(
                        "INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data,"
                        " created_at_ms, epoch) VALUES ('t', 'exec_1', :version, 'e', '{\"a\": 1.0}', 5, 0)"
                    ),
                    {"version": version},
                )
        schema, stored = await description(db), await rows(db)
        assert len(stored) == 5

        for revision in VERSIONS[-2::-1]:
            await downgrade(db, revision)
            assert (await revisions(db)).current == revision
            assert await rows(db) == stored
        await upgrade(db)

        assert await rows(db) == stored
        assert await description(db) == schema
        async with db.owning() as connection:
            await connection.execute(
                text(
                    "INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data,"
                    " created_at_ms, epoch) VALUES ('t', 'exec_1', 4, 'e', '{}', 5, 0)"
                )
            )
        assert (await rows(db))[4][0] > stored[3][0]  # positions go on counting

        await downgrade(db, "none")
        assert await description(db) == []


async def test_one_cannot_go_down_to_where_one_is_or_to_nowhere(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)

        for target in ((await revisions(db)).newest, "9999", "base"):
            with pytest.raises(UnknownRevision):
                await downgrade(db, target)


async def test_a_table_changed_by_hand_is_told(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.owning() as connection:
            await connection.execute(text("ALTER TABLE workflows ADD COLUMN extra INTEGER"))
            await connection.execute(text("DROP INDEX executions_by_status"))

        found = await differences(db)

        assert len(found) == 2
        assert any("extra" in sentence for sentence in found)
        assert any("executions_by_status" in sentence for sentence in found)
