"""Registered workflow definitions: immutable once they are there."""

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
