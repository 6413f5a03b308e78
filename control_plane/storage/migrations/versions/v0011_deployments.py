"""How each version came to be registered, and why in spite of what it would have done differently."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "deployments",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("deployed_by", sa.Text, nullable=False),
        sa.Column("replayed", sa.BigInteger, nullable=False),
        sa.Column("diverged", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "workflow_id", name="deployments_pkey"),
    )
    op.create_index("deployments_by_name", "deployments", ["tenant_id", "name", "at_ms"])
    protect("deployments", "read and add")


def downgrade() -> None:
    op.drop_table("deployments")
