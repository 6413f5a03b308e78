"""Registered workflow definitions, immutable once they are there, and how each came to be registered."""

from sqlalchemy import JSON, BigInteger, Column, Index, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from control_plane.storage.tables.types import Retention, kept, metadata

workflows = Table(
    "workflows",
    metadata,
    Column("id", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("planner_type", Text, nullable=False),
    Column("config_yaml", Text, nullable=False),  # the source, byte for byte: programs are compiled from it again
    Column("definition", JSON, nullable=False),
    Column("template_version_constraint", Text),  # which versions of its template it may be moved to
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("id", name="workflows_pkey"),
    UniqueConstraint("tenant_id", "name", "version", name="workflows_version_key"),
    Index("workflows_by_time", "tenant_id", "created_at_ms", "id"),
    info=kept(Retention.REGISTERED),
)

# Versions that were tried on recorded executions before they were registered, and why one was taken in spite of it.
deployments = Table(
    "deployments",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("deployed_by", Text, nullable=False),
    Column("replayed", BigInteger, nullable=False),
    Column("diverged", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "workflow_id", name="deployments_pkey"),
    Index("deployments_by_name", "tenant_id", "name", "at_ms"),
    info=kept(Retention.REGISTERED),
)
