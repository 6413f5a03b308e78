"""Tenants, the people and services that act for them, and their rights."""

import sqlalchemy as sa
from alembic import op

from control_plane.storage.migrations.row_security import protect

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    _tenants()
    # Everything so far belongs to it.
    op.execute("INSERT INTO tenants VALUES ('default', 'default', 'standard', '{}', 0)")
    _users()
    _api_keys()
    _rbac_roles()
    _rbac_bindings()
    protect("tenants", "read", tenant_column="id")
    protect("users")
    protect("api_keys")
    protect("rbac_roles")
    protect("rbac_bindings")


def downgrade() -> None:
    for name in ("rbac_bindings", "rbac_roles", "api_keys", "users", "tenants"):
        op.drop_table(name)


def _tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tier", sa.Text, nullable=False),
        sa.Column("quotas", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="tenants_pkey"),
    )


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("email", sa.Text),
        sa.Column("hashed_secret", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("disabled_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="users_pkey"),
        sa.UniqueConstraint("tenant_id", "email", name="users_email_key"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="users_tenant_fkey"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hashed_secret", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger),
        sa.Column("revoked_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="api_keys_pkey"),
        sa.ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"], name="api_keys_user_fkey"),
    )
    op.create_index("api_keys_by_user", "api_keys", ["tenant_id", "user_id"])


def _rbac_roles() -> None:
    op.create_table(
        "rbac_roles",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("allowed_tools", sa.JSON, nullable=False),
        sa.Column("policies", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="rbac_roles_pkey"),
        sa.UniqueConstraint("tenant_id", "name", name="rbac_roles_name_key"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="rbac_roles_tenant_fkey"),
    )


def _rbac_bindings() -> None:
    op.create_table(
        "rbac_bindings",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("role_id", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "user_id", "role_id", name="rbac_bindings_pkey"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "user_id"], ["users.tenant_id", "users.id"], name="rbac_bindings_user_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "role_id"], ["rbac_roles.tenant_id", "rbac_roles.id"], name="rbac_bindings_role_fkey"
        ),
    )
    op.create_index("rbac_bindings_by_role", "rbac_bindings", ["tenant_id", "role_id"])
