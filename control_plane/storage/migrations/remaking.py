"""Changing what `ALTER TABLE` cannot: the old table steps aside, a new one takes its name and its rows.

Done this way on both engines, so that a migrated schema reads, to the letter, like one made anew. All of it happens
in the migration's one transaction. The caller takes row-level security off before and puts it back after.
"""

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from alembic import op

_ASIDE = "_before"


def remake(
    table: str,
    create: Callable[[], None],
    *,
    columns: Sequence[str],
    filled: dict[str, str] | None = None,
    identity: str | None = None,
) -> None:
    """`columns` are kept as they are; `filled` gives a new column its value; `identity` goes on counting."""
    _step_aside(table, identity)
    create()
    new = filled or {}
    names = ", ".join([*columns, *new])
    values = ", ".join([*columns, *new.values()])
    postgres = op.get_bind().dialect.name == "postgresql"
    overriding = " OVERRIDING SYSTEM VALUE" if identity and postgres else ""
    op.execute(f"INSERT INTO {table} ({names}){overriding} SELECT {values} FROM {table}{_ASIDE}")  # noqa: S608
    op.drop_table(f"{table}{_ASIDE}")
    if identity and postgres:
        sequence = f"pg_get_serial_sequence('{table}', '{identity}')"
        op.execute(f"SELECT setval({sequence}, max({identity})) FROM {table} HAVING count(*) > 0")  # noqa: S608


def _step_aside(table: str, identity: str | None) -> None:
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    for index in inspector.get_indexes(table):
        if index["name"] is not None and not index.get("duplicates_constraint"):
            op.drop_index(index["name"], table)
    if connection.dialect.name == "postgresql":
        keys = [inspector.get_pk_constraint(table)["name"]]
        keys += [key["name"] for key in inspector.get_unique_constraints(table)]
        for key in keys:
            if key is not None:
                op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {key}")
        if identity:
            op.execute(f"ALTER SEQUENCE {table}_{identity}_seq RENAME TO {table}_{identity}_seq{_ASIDE}")
    op.rename_table(table, f"{table}{_ASIDE}")
