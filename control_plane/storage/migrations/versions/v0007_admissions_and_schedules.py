"""Who waits for room to begin, and how far each schedule has come."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.remaking import remake
from control_plane.storage.migrations.row_security import protect, unprotect

revision = "0007"
down_revision = "0006"

_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "admissions",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("workflow", sa.Text, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("workflow_max", sa.Integer),
        sa.Column("of_tenant", sa.Integer, nullable=False),
        sa.Column("admitted_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("tenant_id", "execution_id", name="admissions_pkey"),
    )
    op.create_index(
        "admissions_waiting",
        "admissions",
        ["tenant_id", "workflow", "rank", "since_ms", "execution_id"],
        postgresql_where=sa.text("admitted_at_ms IS NULL"),
        sqlite_where=sa.text("admitted_at_ms IS NULL"),
    )
    op.create_index(
        "admissions_admitted",
        "admissions",
        ["tenant_id", "workflow", "of_tenant"],
        postgresql_where=sa.text("admitted_at_ms IS NOT NULL"),
        sqlite_where=sa.text("admitted_at_ms IS NOT NULL"),
    )
    protect("admissions", "read")
    unprotect("schedules")
    remake("schedules", lambda: _schedules(moving=True), columns=_SCHEDULE, filled={"revision": "0"})
    protect("schedules")


def downgrade() -> None:
    unprotect("schedules")
    remake("schedules", lambda: _schedules(moving=False), columns=_SCHEDULE)
    protect("schedules")
    op.drop_table("admissions")


_SCHEDULE = (
    "tenant_id", "id", "name", "workflow", "spec", "input", "next_at_ms", "last_at_ms", "created_at_ms",
)  # fmt: skip


def _schedules(*, moving: bool) -> None:
    progress = (
        sa.Column("paused_at_ms", sa.BigInteger),
        sa.Column("progress", sa.JSON),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "schedules",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("workflow", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("input", sa.JSON, nullable=False),
        sa.Column("next_at_ms", sa.BigInteger),
        sa.Column("last_at_ms", sa.BigInteger),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        *(progress if moving else ()),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="schedules_pkey"),
        sa.UniqueConstraint("tenant_id", "name", name="schedules_name_key"),
    )
    op.create_index(
        "schedules_due",
        "schedules",
        ["next_at_ms"],
        postgresql_where=sa.text("next_at_ms IS NOT NULL"),
        sqlite_where=sa.text("next_at_ms IS NOT NULL"),
    )
