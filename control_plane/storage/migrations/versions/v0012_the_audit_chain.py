"""The audit chain as it is filled: records as text, found by their own id, and places that grow with time.

Nothing filled these tables before, so nothing of them is kept.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.storage.migrations.dividing import add_default_part
from control_plane.storage.migrations.row_security import protect
from control_plane.storage.roles import SYSTEM_ROLE

revision = "0012"
down_revision = "0011"

_json_text = sa.Text().with_variant(sa.JSON(), "postgresql")
_searchable_json = sa.JSON().with_variant(JSONB(), "postgresql")
_timed_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_TABLES = ("audits", "audit_heads", "audit_pending")


def upgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
    _pending(sa.Text())
    op.create_table(
        "audit_heads",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("last_id", _timed_id, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="audit_heads_pkey"),
    )
    _chain()
    _protect()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"REVOKE UPDATE ON audits FROM {SYSTEM_ROLE}")  # a link is added, and one day dropped; never changed


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
    _pending(_json_text)
    op.create_table(
        "audit_heads",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="audit_heads_pkey"),
    )
    _chain_of_nobody()
    _protect()


def _protect() -> None:
    protect("audit_pending", "read and add")
    protect("audit_heads", "read")
    protect("audits", "read")


def _pending(record: "sa.types.TypeEngine[str]") -> None:
    op.create_table(
        "audit_pending",
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("record", record, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pending_pkey"),
    )
    op.create_index("audit_pending_by_tenant", "audit_pending", ["tenant_id", "id"])


def _chain() -> None:
    op.create_table(
        "audits",
        sa.Column("id", _timed_id, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("record_id", sa.Text, nullable=False),
        sa.Column("actor_type", sa.Text, nullable=False),
        sa.Column("actor_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource_type", sa.Text, nullable=False),
        sa.Column("resource_id", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audits_pkey"),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index("audits_in_order", "audits", ["tenant_id", "seq"])
    op.create_index("audits_by_record", "audits", ["tenant_id", "record_id"])
    op.create_index("audits_by_actor", "audits", ["tenant_id", "actor_id", "seq"])
    op.create_index("audits_by_resource", "audits", ["tenant_id", "resource_id", "seq"])
    add_default_part("audits")


def _chain_of_nobody() -> None:
    """As revision 0006 made it."""
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
