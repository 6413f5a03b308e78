"""How much each tenant stores, as it was counted last."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0018"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "storage_use",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="storage_use_pkey"),
    )
    protect("storage_use", "read")


def downgrade() -> None:
    op.drop_table("storage_use")
