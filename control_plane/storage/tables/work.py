"""What work is done with and waits for: agents and their states, tools, schedules, people, remembered requests."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from control_plane.storage.tables.types import Retention, SearchableJson, TimedId, kept, metadata

agents = Table(
    "agents",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),  # its name: what workflows call it by
    Column("type", Text, nullable=False),
    Column("role_id", Text),
    Column("config", JSON, nullable=False),
    Column("policies", JSON, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "id", name="agents_pkey"),
    info=kept(Retention.REGISTERED),
)

agent_states = Table(
    "agent_states",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("instance", Text, nullable=False),  # one agent may live many times, once for each conversation
    Column("version", BigInteger, nullable=False),
    Column("checkpoint_type", Text, nullable=False),
    Column("worker_id", Text),  # where it lives; nowhere while it hibernates
    Column("state_data", LargeBinary, nullable=False),
    Column("metadata", SearchableJson, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "agent_id", "instance", "version", name="agent_states_pkey"),
    Index("agent_states_by_metadata", "metadata", postgresql_using="gin").ddl_if(dialect="postgresql"),
    info=kept(Retention.AGENT_STATE),
)

tools = Table(
    "tools",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("definition", JSON, nullable=False),  # all of it, as it was pushed: what the digest is of
    Column("permissions", JSON, nullable=False),
    Column("cost_model", JSON),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "name", "version", name="tools_pkey"),
    info=kept(Retention.REGISTERED),
)

schedules = Table(
    "schedules",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("workflow", Text, nullable=False),  # a reference, resolved when it fires
    Column("spec", JSON, nullable=False),  # cron or interval, time zone, overlap, catch-up
    Column("input", JSON, nullable=False),
    Column("next_at_ms", BigInteger),  # never again, while paused or when over
    Column("last_at_ms", BigInteger),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("paused_at_ms", BigInteger),
    Column("progress", JSON),  # what it fired, what waits for an earlier one, what went wrong
    Column("revision", BigInteger, nullable=False),  # grows with every change
    PrimaryKeyConstraint("tenant_id", "id", name="schedules_pkey"),
    UniqueConstraint("tenant_id", "name", name="schedules_name_key"),
    Index(
        "schedules_due",
        "next_at_ms",
        postgresql_where=text("next_at_ms IS NOT NULL"),
        sqlite_where=text("next_at_ms IS NOT NULL"),
    ),
    info=kept(Retention.REGISTERED),
)

# Executions whose workflow or tenant may have only so many under way: those that queue, and those that have room.
admissions = Table(
    "admissions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("execution_id", TimedId, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("rank", Integer, nullable=False),  # its priority with the sign turned: the lowest goes first
    Column("since_ms", BigInteger, nullable=False),
    Column("workflow_max", Integer),
    Column("of_tenant", Integer, nullable=False),  # 1: it counts among those of its tenant
    Column("admitted_at_ms", BigInteger),
    PrimaryKeyConstraint("tenant_id", "execution_id", name="admissions_pkey"),
    Index(
        "admissions_waiting",
        "tenant_id",
        "workflow",
        "rank",
        "since_ms",
        "execution_id",
        postgresql_where=text("admitted_at_ms IS NULL"),
        sqlite_where=text("admitted_at_ms IS NULL"),
    ),
    Index(
        "admissions_admitted",
        "tenant_id",
        "workflow",
        "of_tenant",
        postgresql_where=text("admitted_at_ms IS NOT NULL"),
        sqlite_where=text("admitted_at_ms IS NOT NULL"),
    ),
    info=kept(Retention.TRANSIENT),
)

# Long operations: who has taken one must say again and again that it lives, or another takes it.
jobs = Table(
    "jobs",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", TimedId, nullable=False),
    Column("kind", Text, nullable=False),
    Column("request", JSON, nullable=False),
    Column("status", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("result", JSON),
    Column("error", Text),
    Column("attempt", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("taken_until_ms", BigInteger),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "id", name="jobs_pkey"),
    Index(
        "jobs_unfinished",
        "id",
        postgresql_where=text("status IN ('queued', 'running')"),
        sqlite_where=text("status IN ('queued', 'running')"),
    ),
    info=kept(Retention.JOB),
)

# A request that made something, so that the same one sent again makes nothing more.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("resource_id", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "operation", "key", name="idempotency_keys_pkey"),
    Index("idempotency_keys_by_resource", "resource_id"),
    info=kept(Retention.REQUEST),
)
