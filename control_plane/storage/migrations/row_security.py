"""The second wall, as migrations build it: the two roles, and for each table who may do what to which rows.

PostgreSQL only; on SQLite every function here does nothing. A migration that adds a table calls `protect` for it; a
test over all tables fails when one was forgotten.
"""

from contextlib import suppress
from typing import Literal

import sqlalchemy as sa
from alembic import op

from control_plane.storage.roles import SYSTEM_ROLE, TENANT_ROLE, RolesNotMade

TenantMay = Literal["read and write", "read and add", "read", "nothing"]
_GRANTS: dict[TenantMay, str] = {
    "read and write": "SELECT, INSERT, UPDATE, DELETE",
    "read and add": "SELECT, INSERT",
    "read": "SELECT",
    "nothing": "",
}


def make_roles() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    for role in (TENANT_ROLE, SYSTEM_ROLE):
        if not connection.scalar(sa.text("SELECT count(*) FROM pg_roles WHERE rolname = :role"), {"role": role}):
            _attempt(connection, f"CREATE ROLE {role} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE")
        if not _may_take(connection, role):
            # Whoever makes a role may give it away, but does not have it by that alone (PostgreSQL 16 and later).
            _attempt(connection, f"GRANT {role} TO CURRENT_USER")
        if not _may_take(connection, role):
            raise RolesNotMade(str(connection.scalar(sa.text("SELECT quote_ident(current_user)"))))
    schema = connection.scalar(sa.text("SELECT quote_ident(current_schema())"))
    op.execute(f"GRANT USAGE ON SCHEMA {schema} TO {TENANT_ROLE}, {SYSTEM_ROLE}")


def _attempt(connection: sa.Connection, statement: str) -> None:
    """Roles belong to the whole server, so another database may be doing the same now: losing that race is as good."""
    with suppress(sa.exc.DBAPIError), connection.begin_nested():
        connection.exec_driver_sql(statement)


def _may_take(connection: sa.Connection, role: str) -> bool:
    how = "SET" if (connection.dialect.server_version_info or (0,)) >= (16,) else "MEMBER"
    query = "SELECT bool_or(pg_has_role(current_user, oid, :how)) FROM pg_roles WHERE rolname = :role"
    return bool(connection.scalar(sa.text(query), {"role": role, "how": how}))


def protect(table: str, tenant_may: TenantMay = "read and write", *, tenant_column: str = "tenant_id") -> None:
    """Let the system work on the table, and a tenant on its own rows of it; the owner itself is bound as well."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {SYSTEM_ROLE}")
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY system_sees_all ON {table} TO {SYSTEM_ROLE} USING (true) WITH CHECK (true)")
    if tenant_may == "nothing":
        return
    own = f"{tenant_column} = current_setting('agentflow.tenant', true)"  # no tenant set: NULL or '', equal to none
    op.execute(f"GRANT {_GRANTS[tenant_may]} ON {table} TO {TENANT_ROLE}")
    op.execute(f"CREATE POLICY tenant_sees_own ON {table} TO {TENANT_ROLE} USING ({own}) WITH CHECK ({own})")


def unprotect(table: str) -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(f"DROP POLICY IF EXISTS tenant_sees_own ON {table}")
    op.execute(f"DROP POLICY system_sees_all ON {table}")
    op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    op.execute(f"REVOKE ALL ON {table} FROM {SYSTEM_ROLE}, {TENANT_ROLE}")
