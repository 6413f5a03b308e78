"""Records of executions in days that can be dropped; tasks for people as they follow from the events.

Nothing filled `human_tasks` before, so nothing of it is kept; `af db rebuild` lists what is open already.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.storage.migrations.dividing import add_default_part
from control_plane.storage.migrations.remaking import remake
from control_plane.storage.migrations.row_security import protect, unprotect

revision = "0009"
down_revision = "0008"

_searchable_json = sa.JSON().with_variant(JSONB(), "postgresql")
_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SNAPSHOT = ("tenant_id", "id", "execution_id", "version", "digest", "bytes", "created_at_ms")


def upgrade() -> None:
    unprotect("snapshots")
    remake("snapshots", lambda: _snapshots(divided=True), columns=_SNAPSHOT)
    protect("snapshots", "read")
    op.drop_table("human_tasks")
    _tasks()
    protect("human_tasks", "read")


def downgrade() -> None:
    op.drop_table("human_tasks")
    _tasks_of_nobody()
    protect("human_tasks")
    unprotect("snapshots")
    remake("snapshots", lambda: _snapshots(divided=False), columns=_SNAPSHOT)
    protect("snapshots", "read")


def _by_day(divided: bool) -> dict[str, Any]:
    return {"postgresql_partition_by": "RANGE (execution_id)"} if divided else {}


def _snapshots(*, divided: bool) -> None:
    key = ("execution_id", "id") if divided else ("tenant_id", "id")
    op.create_table(
        "snapshots",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(*key, name="snapshots_pkey"),
        sa.UniqueConstraint("execution_id", "version", name="snapshots_version_key"),
        **_by_day(divided),
    )
    op.create_index("snapshots_by_time", "snapshots", ["tenant_id", "created_at_ms"])
    if divided:
        op.create_index("snapshots_by_id", "snapshots", ["tenant_id", "id"])
        add_default_part("snapshots")


def _tasks() -> None:
    op.create_table(
        "human_tasks",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("opened_at_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("execution_id", "path", name="human_tasks_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_index(
        "human_tasks_pending",
        "human_tasks",
        ["tenant_id", "opened_at_ms", "execution_id", "path"],
        postgresql_where=sa.text("ended_at_ms IS NULL"),
        sqlite_where=sa.text("ended_at_ms IS NULL"),
    )
    add_default_part("human_tasks")


def _tasks_of_nobody() -> None:
    """As revision 0005 made them."""
    op.create_table(
        "human_tasks",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("task_data", _searchable_json, nullable=False),
        sa.Column("assignee_role", sa.Text),
        sa.Column("assignee_user_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("due_at_ms", sa.BigInteger),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.Column("completed_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="human_tasks_pkey"),
        sa.UniqueConstraint("execution_id", "path", name="human_tasks_step_key"),
    )
    op.create_index(
        "human_tasks_pending",
        "human_tasks",
        ["tenant_id", "due_at_ms"],
        postgresql_where=sa.text("completed_at_ms IS NULL"),
        sqlite_where=sa.text("completed_at_ms IS NULL"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("human_tasks_by_data", "human_tasks", ["task_data"], postgresql_using="gin")
