"""Tables that are divided by day, as migrations make them: with one part that takes whatever no day was made for.

PostgreSQL only. The days themselves come and go at run time: see `control_plane.storage.days`.
"""

from alembic import op

from control_plane.storage.roles import SYSTEM_ROLE


def add_default_part(table: str) -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    part = f"{table}_default"
    op.execute(f"CREATE TABLE {part} PARTITION OF {table} DEFAULT")
    # Nobody has rights on a part, and no policy lets anybody in: the only way is through the table, with its policies.
    op.execute(f"ALTER TABLE {part} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {part} FORCE ROW LEVEL SECURITY")


def let_system_see_the_counter(table: str, identity: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"GRANT SELECT ON SEQUENCE {table}_{identity}_seq TO {SYSTEM_ROLE}")
