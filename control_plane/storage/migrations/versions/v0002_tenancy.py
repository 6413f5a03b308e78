"""Tenants, the tables that hold what is theirs, and row-level security over all of them."""

from control_plane.storage.migrations.row_security import make_roles, protect, unprotect

revision = "0002"
down_revision = "0001"

_OWNED_BEFORE = ("workflows", "executions", "event_store")


def upgrade() -> None:
    make_roles()
    for name in ("executions", "event_store"):
        protect(name, "read")  # only the orchestrator writes what happened
    protect("workflows")


def downgrade() -> None:
    for name in _OWNED_BEFORE:
        unprotect(name)
