"""The schema: migrations lead to the tables, one of many processes migrates, a newer schema is refused."""

import asyncio
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from agentflow.errors import AgentFlowError
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import SchemaTooNew, upgrade
from control_plane.storage.tables import metadata

# How each engine itself describes a schema: constraints, partial indexes and identity included.
DESCRIPTION = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' ORDER BY name",
    "postgresql": """
        SELECT table_name || '.' || column_name, data_type || is_nullable || coalesce(identity_generation, '')
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'
        UNION ALL
        SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'
        UNION ALL
        SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conrelid <> to_regclass('alembic_version')
        ORDER BY 1, 2
    """,
}


async def description(db: Database) -> list[Any]:
    async with db.owning() as connection:
        return [tuple(row) for row in await connection.execute(text(DESCRIPTION[db.engine]))]


async def test_migrations_lead_to_the_tables_in_the_code(database_dsn: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection)
        return list(compare_metadata(context, metadata))

    def made_anew(connection: Connection) -> None:
        metadata.drop_all(connection)
        metadata.create_all(connection)

    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.owning() as connection:
            assert await connection.run_sync(differences) == []
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
                    text("INSERT INTO workflows VALUES (:id, 't', :id, '1', 'd', 'fsm', '', '{}', 1)"),
                    {"id": str(id(db))},
                )

    await asyncio.gather(*(start() for _ in range(5)))

    async with database(database_dsn) as db, db.owning() as connection:
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).all() == [("0002",)]
        assert await connection.scalar(text("SELECT count(*) FROM workflows")) == 5  # nobody's tables were made anew


async def test_a_schema_from_a_newer_release_is_refused_and_left_alone(database_dsn: str) -> None:
    async with database(database_dsn) as db:
        await upgrade(db)
        async with db.owning() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        before = await description(db)

        with pytest.raises(SchemaTooNew, match=r"revision 9999.*newest is 0002"):
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
