"""Cost observations as they are filled: tokens by kinds that do not overlap, a price that may be unknown, the workflow.

Nothing filled the table before, so nothing of it is kept.
"""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.dividing import add_default_part
from control_plane.storage.migrations.row_security import protect

revision = "0014"
down_revision = "0013"

_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_KINDS = ("input", "cache_read", "cache_write", "output", "reasoning", "audio")


def upgrade() -> None:
    _make(
        sa.Column("workflow", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("microdollars", sa.BigInteger),
        *(sa.Column(f"tokens_{kind}", sa.BigInteger, nullable=False) for kind in _KINDS),
    )


def downgrade() -> None:
    _make(
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("microdollars", sa.BigInteger, nullable=False),
    )


def _make(*columns: sa.Column[int] | sa.Column[str]) -> None:
    op.drop_table("cost_observations")
    op.create_table(
        "cost_observations",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        *columns,
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "id", name="cost_observations_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_index("cost_observations_by_time", "cost_observations", ["tenant_id", "at_ms"])
    add_default_part("cost_observations")
    protect("cost_observations", "read")
