"""Agents and their saved states, tools, schedules, tasks for people, remembered requests."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.storage.migrations.row_security import protect

revision = "0005"
down_revision = "0004"

_searchable_json = sa.JSON().with_variant(JSONB(), "postgresql")
_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _agents()
    _agent_states()
    _tools()
    _schedules()
    _human_tasks()
    _idempotency_keys()
    protect("agents")
    protect("agent_states", "read")
    protect("tools")
    protect("schedules")
    protect("human_tasks")
    protect("idempotency_keys")


def downgrade() -> None:
    for name in ("idempotency_keys", "human_tasks", "schedules", "tools", "agent_states", "agents"):
        op.drop_table(name)


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("role_id", sa.Text),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("policies", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="agents_pkey"),
    )


def _agent_states() -> None:
    op.create_table(
        "agent_states",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("instance", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("checkpoint_type", sa.Text, nullable=False),
        sa.Column("worker_id", sa.Text),
        sa.Column("state_data", sa.LargeBinary, nullable=False),
        sa.Column("metadata", _searchable_json, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "agent_id", "instance", "version", name="agent_states_pkey"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("agent_states_by_metadata", "agent_states", ["metadata"], postgresql_using="gin")


def _tools() -> None:
    op.create_table(
        "tools",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("definition", sa.JSON, nullable=False),
        sa.Column("permissions", sa.JSON, nullable=False),
        sa.Column("cost_model", sa.JSON),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "name", "version", name="tools_pkey"),
    )


def _schedules() -> None:
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


def _human_tasks() -> None:
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


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("body_hash", sa.Text, nullable=False),
        sa.Column("resource_id", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "operation", "key", name="idempotency_keys_pkey"),
    )
    op.create_index("idempotency_keys_by_resource", "idempotency_keys", ["resource_id"])
