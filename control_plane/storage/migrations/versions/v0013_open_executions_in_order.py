"""What is open in a shard is read from its index alone, a page at a time."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_NAME = "executions_open_by_shard"


def upgrade() -> None:
    _index("shard", "id")


def downgrade() -> None:
    _index("shard")


def _index(*columns: str) -> None:
    still_open = sa.text("ended_at_ms IS NULL")
    op.drop_index(_NAME, "executions")
    op.create_index(_NAME, "executions", columns, postgresql_where=still_open, sqlite_where=still_open)
