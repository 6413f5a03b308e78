"""Tenants, who acts for them, and what they may do.

A key that names something of a tenant names the tenant too, so no row can point across the border.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from control_plane.storage.tables.types import Retention, kept, metadata

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("quotas", JSON, nullable=False),  # by kind: agents, workflows, executions, dollars, bytes
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("id", name="tenants_pkey"),
    info=kept(Retention.TENANT),
)

# How much each tenant stores, as it was counted last.
storage_use = Table(
    "storage_use",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="storage_use_pkey"),
    info=kept(Retention.TENANT),
)

users = Table(
    "users",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # a person, or a service account
    Column("email", Text),
    Column("hashed_secret", Text),  # none for whoever comes by OIDC or by key
    Column("created_at_ms", BigInteger, nullable=False),
    Column("disabled_at_ms", BigInteger),
    Column("name", Text),
    Column("outside_subject", Text),  # who this is to another issuer (OIDC)
    Column("tokens_after_ms", BigInteger),  # tokens issued before are void
    PrimaryKeyConstraint("tenant_id", "id", name="users_pkey"),
    UniqueConstraint("tenant_id", "email", name="users_email_key"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="users_tenant_fkey"),
    Index("users_by_outside_subject", "tenant_id", "outside_subject", unique=True),
    info=kept(Retention.TENANT),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, nullable=False),  # the readable half of the key: it is found by it before its tenant is known
    Column("tenant_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hashed_secret", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
    Column("scopes", JSON(none_as_null=True)),  # permissions it is limited to; none: all of its owner's
    PrimaryKeyConstraint("id", name="api_keys_pkey"),
    ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"], name="api_keys_user_fkey"),
    Index("api_keys_by_user", "tenant_id", "user_id"),
    info=kept(Retention.TENANT),
)

rbac_roles = Table(
    "rbac_roles",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("allowed_tools", JSON, nullable=False),
    Column("policies", JSON, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("permissions", JSON(none_as_null=True)),  # none for built-in roles: theirs are in the code
    PrimaryKeyConstraint("tenant_id", "id", name="rbac_roles_pkey"),
    UniqueConstraint("tenant_id", "name", name="rbac_roles_name_key"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="rbac_roles_tenant_fkey"),
    info=kept(Retention.TENANT),
)

rbac_bindings = Table(
    "rbac_bindings",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("role_id", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "user_id", "role_id", name="rbac_bindings_pkey"),
    ForeignKeyConstraint(["tenant_id", "user_id"], ["users.tenant_id", "users.id"], name="rbac_bindings_user_fkey"),
    ForeignKeyConstraint(
        ["tenant_id", "role_id"], ["rbac_roles.tenant_id", "rbac_roles.id"], name="rbac_bindings_role_fkey"
    ),
    Index("rbac_bindings_by_role", "tenant_id", "role_id"),
    info=kept(Retention.TENANT),
)

# Tokens that were ended before their time; a row is of no use once the token has expired.
revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "id", name="revoked_tokens_pkey"),
    Index("revoked_tokens_by_expiry", "expires_at_ms"),
    info=kept(Retention.TRANSIENT),
)

# What tokens are signed with. The private half is sealed; the public one verifies, on every control plane.
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("id", Text, nullable=False),
    Column("algorithm", Text, nullable=False),
    Column("public_jwk", JSON, nullable=False),
    Column("private_sealed", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("id", name="signing_keys_pkey"),
    info=kept(Retention.DEPLOYMENT),
)
