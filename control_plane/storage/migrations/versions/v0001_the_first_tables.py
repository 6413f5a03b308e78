"""The first tables: workflows, executions, event_store."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_json_text = sa.Text().with_variant(sa.JSON(), "postgresql")
_counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "workflows",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("planner_type", sa.Text, nullable=False),
        sa.Column("config_yaml", sa.Text, nullable=False),
        sa.Column("definition", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="workflows_pkey"),
        sa.UniqueConstraint("tenant_id", "name", "version", name="workflows_version_key"),
    )
    op.create_table(
        "executions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("workflow_id", sa.Text, nullable=False),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("workflow_version", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("shard", sa.SmallInteger, nullable=False),
        sa.Column("trace_id", sa.Text, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="executions_pkey"),
    )
    op.create_index("executions_by_start", "executions", ["tenant_id", "started_at_ms"])
    op.create_index(
        "executions_open_by_shard",
        "executions",
        ["shard"],
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.create_table(
        "event_store",
        sa.Column("position", _counter, sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("event_data", _json_text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("position", name="event_store_pkey"),
        sa.UniqueConstraint("execution_id", "version", name="event_store_version_key"),
    )


def downgrade() -> None:
    op.drop_table("event_store")
    op.drop_table("executions")
    op.drop_table("workflows")
