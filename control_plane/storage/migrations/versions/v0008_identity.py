"""What identity needs beside people and roles: signing keys, ended tokens, scopes, and who somebody is elsewhere."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("users", sa.Column("name", sa.Text))
    op.add_column("users", sa.Column("outside_subject", sa.Text))
    op.add_column("users", sa.Column("tokens_after_ms", sa.BigInteger))
    op.create_index("users_by_outside_subject", "users", ["tenant_id", "outside_subject"], unique=True)
    op.add_column("api_keys", sa.Column("scopes", sa.JSON))
    op.add_column("rbac_roles", sa.Column("permissions", sa.JSON))
    _revoked_tokens()
    _signing_keys()
    protect("revoked_tokens")
    protect("signing_keys", "nothing")


def downgrade() -> None:
    op.drop_table("signing_keys")
    op.drop_table("revoked_tokens")
    op.drop_column("rbac_roles", "permissions")
    op.drop_column("api_keys", "scopes")
    op.drop_index("users_by_outside_subject", "users")
    for name in ("tokens_after_ms", "outside_subject", "name"):
        op.drop_column("users", name)


def _revoked_tokens() -> None:
    op.create_table(
        "revoked_tokens",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="revoked_tokens_pkey"),
    )
    op.create_index("revoked_tokens_by_expiry", "revoked_tokens", ["expires_at_ms"])


def _signing_keys() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("algorithm", sa.Text, nullable=False),
        sa.Column("public_jwk", sa.JSON, nullable=False),
        sa.Column("private_sealed", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="signing_keys_pkey"),
    )
