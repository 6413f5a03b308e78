"""Executions in days that can be dropped; leases on shards; snapshots of state; plans as people see them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.dividing import add_default_part, let_system_see_the_counter
from control_plane.storage.migrations.remaking import remake
from control_plane.storage.migrations.row_security import protect, unprotect

revision = "0003"
down_revision = "0002"

_json_text = sa.Text().with_variant(sa.JSON(), "postgresql")
_counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_EXECUTION = [
    "id",
    "tenant_id",
    "workflow_id",
    "workflow_name",
    "workflow_version",
    "status",
    "shard",
    "trace_id",
    "started_at_ms",
    "ended_at_ms",
]
_EVENT = ["position", "tenant_id", "execution_id", "version", "event_type", "event_data", "created_at_ms"]
_WORKFLOW = [
    "id",
    "tenant_id",
    "name",
    "version",
    "digest",
    "planner_type",
    "config_yaml",
    "definition",
    "created_at_ms",
]
_OF_EXECUTIONS = ("execution_snapshots", "plans", "plan_steps")


def upgrade() -> None:
    for name in ("executions", "event_store", "workflows"):
        unprotect(name)
    remake("executions", lambda: _executions(divided=True), columns=_EXECUTION)
    remake(
        "event_store", lambda: _event_store(divided=True), columns=_EVENT, filled={"epoch": "0"}, identity="position"
    )
    remake("workflows", lambda: _workflows(templated=True), columns=_WORKFLOW)
    _snapshots_and_plans()
    for name in ("executions", "event_store", *_OF_EXECUTIONS):
        protect(name, "read")  # only the orchestrator writes what happened
    protect("workflows")
    let_system_see_the_counter("event_store", "position")
    _leases()
    for name in ("shard_leases", "deployment"):
        protect(name, "nothing")


def downgrade() -> None:
    for name in ("shard_leases", "deployment", *_OF_EXECUTIONS):
        op.drop_table(name)
    for name in ("executions", "event_store", "workflows"):
        unprotect(name)
    remake("executions", lambda: _executions(divided=False), columns=_EXECUTION)
    remake("event_store", lambda: _event_store(divided=False), columns=_EVENT, identity="position")
    remake("workflows", lambda: _workflows(templated=False), columns=_WORKFLOW)
    for name in ("executions", "event_store"):
        protect(name, "read")
    protect("workflows")


def _by_day(divided: bool, column: str) -> dict[str, Any]:
    return {"postgresql_partition_by": f"RANGE ({column})"} if divided else {}


def _executions(*, divided: bool) -> None:
    op.create_table(
        "executions",
        sa.Column("id", _timed_id if divided else sa.Text, nullable=False),
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
        **_by_day(divided, "id"),
    )
    is_open = sa.text("ended_at_ms IS NULL" if divided else "status = 'running'")
    op.create_index("executions_open_by_shard", "executions", ["shard"], postgresql_where=is_open, sqlite_where=is_open)
    if not divided:
        op.create_index("executions_by_start", "executions", ["tenant_id", "started_at_ms"])
        return
    op.create_index("executions_by_start", "executions", ["tenant_id", "started_at_ms", "id"])
    op.create_index("executions_by_status", "executions", ["tenant_id", "status", "started_at_ms", "id"])
    op.create_index("executions_by_workflow", "executions", ["tenant_id", "workflow_name", "started_at_ms", "id"])
    add_default_part("executions")


def _event_store(*, divided: bool) -> None:
    postgres = op.get_bind().dialect.name == "postgresql"
    own_key = [] if divided and postgres else [sa.PrimaryKeyConstraint("position", name="event_store_pkey")]
    epoch = [sa.Column("epoch", sa.Integer, nullable=False)] if divided else []
    op.create_table(
        "event_store",
        sa.Column("position", _counter, sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("execution_id", _timed_id if divided else sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("event_data", _json_text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        *epoch,
        *own_key,
        sa.UniqueConstraint("execution_id", "version", name="event_store_version_key"),
        sqlite_autoincrement=divided,
        **_by_day(divided, "execution_id"),
    )
    if divided and postgres:
        op.create_index("event_store_by_position", "event_store", ["position"])
        add_default_part("event_store")


def _workflows(*, templated: bool) -> None:
    constraint = [sa.Column("template_version_constraint", sa.Text)] if templated else []
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
        *constraint,
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="workflows_pkey"),
        sa.UniqueConstraint("tenant_id", "name", "version", name="workflows_version_key"),
    )
    if templated:
        op.create_index("workflows_by_time", "workflows", ["tenant_id", "created_at_ms", "id"])


def _snapshots_and_plans() -> None:
    op.create_table(
        "execution_snapshots",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("execution_id", name="execution_snapshots_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_table(
        "plans",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_id", name="plans_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_table(
        "plan_steps",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("tool", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("fault", sa.Text),
        sa.Column("scheduled_at_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("execution_id", "path", name="plan_steps_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_index("plan_steps_in_order", "plan_steps", ["execution_id", "number"])
    for name in _OF_EXECUTIONS:
        add_default_part(name)


def _leases() -> None:
    op.create_table(
        "shard_leases",
        sa.Column("shard", sa.SmallInteger, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("shard", name="shard_leases_pkey"),
    )
    op.create_table(
        "deployment",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="deployment_pkey"),
    )
