"""Long operations that outlive whoever does them."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0010"
down_revision = "0009"

_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("taken_until_ms", sa.BigInteger),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="jobs_pkey"),
    )
    op.create_index(
        "jobs_unfinished",
        "jobs",
        ["id"],
        postgresql_where=sa.text("status IN ('queued', 'running')"),
        sqlite_where=sa.text("status IN ('queued', 'running')"),
    )
    protect("jobs")


def downgrade() -> None:
    op.drop_table("jobs")
