"""Budgets as people make them. What was spent is added up from the cost observations, so no column counts it.

Nothing filled the table before, so nothing of it is kept.
"""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.drop_table("budgets")
    op.create_table(
        "budgets",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("microdollars", sa.BigInteger),
        sa.Column("tokens", sa.BigInteger),
        sa.Column("on_exceed", sa.Text, nullable=False),
        sa.Column("warn_at_percent", sa.Integer, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
        sa.Column("told_of_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="budgets_pkey"),
        sa.UniqueConstraint("tenant_id", "scope", "name", "period", name="budgets_scope_key"),
    )
    protect("budgets")


def downgrade() -> None:
    op.drop_table("budgets")
    op.create_table(
        "budgets",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("scope_id", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("on_exceed", sa.Text, nullable=False),
        sa.Column("limit_tokens", sa.BigInteger),
        sa.Column("limit_microdollars", sa.BigInteger),
        sa.Column("reserved_tokens", sa.BigInteger, nullable=False),
        sa.Column("reserved_microdollars", sa.BigInteger, nullable=False),
        sa.Column("spent_tokens", sa.BigInteger, nullable=False),
        sa.Column("spent_microdollars", sa.BigInteger, nullable=False),
        sa.Column("period_began_at_ms", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="budgets_pkey"),
        sa.UniqueConstraint("tenant_id", "scope", "scope_id", "period", name="budgets_scope_key"),
    )
    protect("budgets")
