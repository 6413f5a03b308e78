"""No tenant reaches another's rows, also where a repository forgot to filter: PostgreSQL itself is asked, by table.

Every table of the metadata is covered by default. The statements here are raw and name no tenant; they run on the
connections that serve tenants.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Table, delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.errors import AgentFlowError
from agentflow.ids import TenantId
from agentflow.ports import StorageUnavailable
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import upgrade
from control_plane.storage.roles import SYSTEM_ROLE, TENANT_ROLE, NoTenant
from control_plane.storage.tables import metadata
from tests.rows import any_row, tenant_column

ACME, OTHER = TenantId("acme"), TenantId("other")
TABLES = metadata.sorted_tables
OWNED = [table for table in TABLES if "tenant_id" in table.c or table.name == "tenants"]
NOBODYS = [table for table in TABLES if table not in OWNED]


async def fill(db: Database, tenant: TenantId) -> None:
    async with db.system_write() as connection:
        for table in OWNED:
            await connection.execute(insert(table), any_row(table, tenant))


@pytest.fixture
async def db(postgres_dsn: str) -> AsyncIterator[Database]:
    async with database(postgres_dsn) as opened:
        await upgrade(opened)
        await fill(opened, ACME)
        await fill(opened, OTHER)
        yield opened


async def as_tenant(db: Database, tenant: TenantId, statement: Any) -> Any:
    """The answer, or None where the tenant's role has no right to ask at all."""
    try:
        async with db.write(tenant) as connection:
            result = await connection.execute(statement)
            return result.fetchall() if result.returns_rows else result.rowcount
    except StorageUnavailable as error:
        if "permission denied" not in error.message:
            raise
        return None


async def all_rows(db: Database, table: Table) -> list[tuple[Any, ...]]:
    async with db.system_write() as connection:
        found = await connection.execute(select(table).order_by(*table.columns.values()[:1]))
        return sorted((tuple(map(str, one)) for one in found), key=str)


async def test_a_tenant_sees_counts_changes_and_deletes_only_its_own_rows_of_every_table(db: Database) -> None:
    for table in OWNED:
        before = await all_rows(db, table)
        assert len(before) >= 2, table.name
        column = table.c[tenant_column(table)]

        seen = await as_tenant(db, ACME, select(column))
        assert seen is not None, table.name
        assert {tenant for (tenant,) in seen} == {ACME}, table.name
        assert await as_tenant(db, ACME, select(func.count()).select_from(table)) == [(1,)], table.name
        changed = await as_tenant(db, ACME, update(table).where(column == OTHER).values({column.name: OTHER}))
        assert changed in (0, None), table.name
        gone = await as_tenant(db, ACME, delete(table).where(column == OTHER))
        assert gone in (0, None), table.name
        assert await all_rows(db, table) == before, table.name


async def test_what_a_tenant_deletes_without_any_condition_is_its_own(db: Database) -> None:
    for table in reversed(OWNED):
        await as_tenant(db, ACME, delete(table))

        left = await all_rows(db, table)
        assert any(OTHER in one for one in left), table.name


async def test_a_tenant_can_neither_add_rows_for_another_nor_give_its_own_away(db: Database) -> None:
    for table in OWNED:
        before = await all_rows(db, table)
        column = table.c[tenant_column(table)]
        foreign = {
            name: f"{value}!" if isinstance(value, str) else value for name, value in any_row(table, OTHER).items()
        }
        foreign[column.name] = OTHER

        for statement in (insert(table).values(foreign), update(table).values({column.name: OTHER})):
            with pytest.raises(AgentFlowError):
                async with db.write(ACME) as connection:
                    await connection.execute(statement)
        assert await all_rows(db, table) == before, table.name


@pytest.mark.parametrize("table", NOBODYS, ids=lambda table: table.name)
async def test_tables_of_no_tenant_are_closed_to_tenants(db: Database, table: Table) -> None:
    assert await as_tenant(db, ACME, select(table)) is None
    assert await as_tenant(db, ACME, delete(table)) is None


async def test_a_connection_that_names_no_tenant_sees_nothing(db: Database) -> None:
    with pytest.raises(NoTenant):
        async with db.read(TenantId("")):
            pass
    async with db._pools.tenant_readers.connect() as connection:  # past every guard of ours
        for table in OWNED:
            assert (await connection.execute(select(func.count()).select_from(table))).scalar() == 0, table.name


async def test_after_an_error_or_a_rollback_the_connection_belongs_to_nobody(db: Database) -> None:
    pool = db._pools.tenant_readers

    async def remembered(connection: AsyncConnection) -> Any:
        return await connection.scalar(text("SELECT current_setting('agentflow.tenant', true)"))

    with pytest.raises(AgentFlowError):
        async with db.write(ACME) as connection:
            await connection.execute(text("SELECT 1/0"))
    with pytest.raises(DBAPIError):
        async with pool.connect() as connection:
            await connection.execute(text("SELECT set_config('agentflow.tenant', 'acme', true), 1/0"))
    for _ in range(3):
        async with pool.connect() as connection:
            assert not await remembered(connection)


async def test_the_roles_that_serve_own_nothing_and_cannot_pass_the_walls(db: Database) -> None:
    async with db.owning() as connection:
        roles = await connection.execute(
            text("SELECT rolname, rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = ANY(:roles)"),
            {"roles": [TENANT_ROLE, SYSTEM_ROLE]},
        )
        owned = await connection.execute(
            text("SELECT relname FROM pg_class JOIN pg_roles ON relowner = pg_roles.oid WHERE rolname = ANY(:roles)"),
            {"roles": [TENANT_ROLE, SYSTEM_ROLE]},
        )

    assert sorted(tuple(role) for role in roles) == [
        (SYSTEM_ROLE, False, False, False),
        (TENANT_ROLE, False, False, False),
    ]
    assert owned.all() == []


async def test_every_table_in_the_catalogue_has_row_level_security_and_forces_it(db: Database) -> None:
    """Also those that no model knows: a table or view somebody adds by hand fails here."""
    async with db.owning() as connection:
        open_tables = await connection.scalars(
            text(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relname <> 'alembic_version' AND (relkind IN ('v', 'm')"
                " OR relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity))"
            )
        )
        direct = await connection.scalars(
            text(
                "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'"
                " AND (has_table_privilege(:tenant, oid, 'SELECT') OR has_table_privilege(:system, oid, 'SELECT'))"
            ),
            {"tenant": TENANT_ROLE, "system": SYSTEM_ROLE},
        )
        assert open_tables.all() == []
        assert direct.all() == []  # a part is reached through its table, or not at all


def test_every_table_says_how_long_its_rows_are_kept() -> None:
    assert [table.name for table in TABLES if "retention" not in table.info] == []
