"""The audit chain, budgets and costs, secrets by name, snapshots by digest."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.storage.migrations.dividing import add_default_part
from control_plane.storage.migrations.row_security import protect

revision = "0006"
down_revision = "0005"

_json_text = sa.Text().with_variant(sa.JSON(), "postgresql")
_searchable_json = sa.JSON().with_variant(JSONB(), "postgresql")
_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _audit_pending()
    _audit_heads()
    _audits()
    _budgets()
    _cost_observations()
    _secrets()
    _snapshots()
    protect("audit_pending", "read and add")
    protect("audit_heads", "read")
    protect("audits", "read")
    protect("budgets")
    protect("cost_observations", "read")
    protect("secrets")
    protect("snapshots", "read")


def downgrade() -> None:
    for name in ("snapshots", "secrets", "cost_observations", "budgets", "audits", "audit_heads", "audit_pending"):
        op.drop_table(name)


def _audit_pending() -> None:
    op.create_table(
        "audit_pending",
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("record", _json_text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pending_pkey"),
    )
    op.create_index("audit_pending_by_tenant", "audit_pending", ["tenant_id", "id"])


def _audit_heads() -> None:
    op.create_table(
        "audit_heads",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="audit_heads_pkey"),
    )


def _audits() -> None:
    op.create_table(
        "audits",
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("actor_type", sa.Text, nullable=False),
        sa.Column("actor_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource_type", sa.Text, nullable=False),
        sa.Column("resource_id", sa.Text, nullable=False),
        sa.Column("details", _searchable_json, nullable=False),
        sa.Column("record", _json_text, nullable=False),
        sa.Column("prev_hash", sa.LargeBinary),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audits_pkey"),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index("audits_in_order", "audits", ["tenant_id", "seq"])
    op.create_index("audits_by_resource", "audits", ["tenant_id", "resource_type", "resource_id"])
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("audits_by_details", "audits", ["details"], postgresql_using="gin")
    add_default_part("audits")


def _budgets() -> None:
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


def _cost_observations() -> None:
    op.create_table(
        "cost_observations",
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("microdollars", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "id", name="cost_observations_pkey"),
        postgresql_partition_by="RANGE (execution_id)",
    )
    op.create_index("cost_observations_by_time", "cost_observations", ["tenant_id", "at_ms"])
    add_default_part("cost_observations")


def _secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("domains", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("rotated_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="secrets_pkey"),
    )


def _snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("execution_id", _timed_id, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="snapshots_pkey"),
        sa.UniqueConstraint("execution_id", "version", name="snapshots_version_key"),
    )
    op.create_index("snapshots_by_time", "snapshots", ["tenant_id", "created_at_ms"])
