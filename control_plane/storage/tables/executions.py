"""What executions leave behind: their events, and what follows from them."""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from control_plane.storage.tables.types import Counter, JsonText, metadata

# What lists and recovery ask for. It follows from the events and is written in their transaction.
executions = Table(
    "executions",
    metadata,
    Column("id", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("workflow_version", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("shard", SmallInteger, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
    PrimaryKeyConstraint("id", name="executions_pkey"),
    Index("executions_by_start", "tenant_id", "started_at_ms"),
    # Only open executions are in it: it stays as small as what is under way.
    Index(
        "executions_open_by_shard",
        "shard",
        postgresql_where=text("status = 'running'"),
        sqlite_where=text("status = 'running'"),
    ),
)

event_store = Table(
    "event_store",
    metadata,
    # The order of writing. Under PostgreSQL a lower position may become visible after a higher one.
    Column("position", Counter, Identity(always=True), nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("execution_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("event_data", JsonText, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("position", name="event_store_pkey"),
    # The guard against two writers: a version of an execution can be written once.
    UniqueConstraint("execution_id", "version", name="event_store_version_key"),
)
