"""Snapshots as they are taken: what they are of is in the row, which outlives the execution; tenants take their own.

Nothing filled the table before, so nothing of it is kept.
"""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.dividing import add_default_part
from control_plane.storage.migrations.row_security import protect

revision = "0016"
down_revision = "0015"

_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _make(
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("workflow_version", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger),
        by_time=["tenant_id", "created_at_ms", "id"],
    )
    protect("snapshots")


def downgrade() -> None:
    _make(by_time=["tenant_id", "created_at_ms"])
    protect("snapshots", "read")


def _make(*columns: sa.Column[int] | sa.Column[str], by_time: list[str]) -> None:
    op.drop_table("snapshots")
    op.create_table(
        "snapshots",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        *columns,
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "id", name="snapshots_pkey"),
        sa.UniqueConstraint("execution_id", "version", name="snapshots_version_key"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_index("snapshots_by_time", "snapshots", by_time)
    op.create_index("snapshots_by_id", "snapshots", ["tenant_id", "id"])
    add_default_part("snapshots")
