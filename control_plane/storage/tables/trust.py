"""What can be proved later: the audit chain, what was spent against which budget, secrets by name, snapshots by digest.

Money is counted in millionths of a dollar, as whole numbers, so that sums are exact on both engines.
"""

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
)

from agentflow.contracts.usage import TOKEN_KINDS
from control_plane.storage.tables.types import Retention, TimedId, kept, metadata

# Written in the transaction of what it tells of, in no order; a sequencer moves it into the chain.
audit_pending = Table(
    "audit_pending",
    metadata,
    Column("id", TimedId, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("record", Text, nullable=False),
    PrimaryKeyConstraint("id", name="audit_pending_pkey"),
    Index("audit_pending_by_tenant", "tenant_id", "id"),
    info=kept(Retention.TRANSIENT),
)

# Where each tenant's chain ends. Moved on in the transaction that adds to the chain, so it cannot fork.
audit_heads = Table(
    "audit_heads",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("last_id", TimedId, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="audit_heads_pkey"),
    info=kept(Retention.TENANT),
)

# The chain. `id` is made with the link and grows with `seq`, so that a day that is dropped is the oldest part of it.
audits = Table(
    "audits",
    metadata,
    Column("id", TimedId, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("record_id", Text, nullable=False),
    Column("actor_type", Text, nullable=False),
    Column("actor_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("resource_type", Text, nullable=False),
    Column("resource_id", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column(
        "record", Text, nullable=False
    ),  # canonical, as it was written: what `hash` is over, with `seq` and `prev_hash`
    Column("prev_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("id", name="audits_pkey"),
    Index("audits_in_order", "tenant_id", "seq"),
    Index("audits_by_record", "tenant_id", "record_id"),
    Index("audits_by_actor", "tenant_id", "actor_id", "seq"),
    Index("audits_by_resource", "tenant_id", "resource_id", "seq"),
    postgresql_partition_by="RANGE (id)",
    info=kept(Retention.AUDIT, day_key="id"),
)

# What was spent is added up from the observations below: kept here as well, the two could differ.
budgets = Table(
    "budgets",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("scope", Text, nullable=False),  # tenant, workflow or agent
    Column("name", Text, nullable=False),  # of the workflow or the agent
    Column("period", Text, nullable=False),
    Column("microdollars", BigInteger),
    Column("tokens", BigInteger),
    Column("on_exceed", Text, nullable=False),
    Column("warn_at_percent", Integer, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    # What the audit trail has heard of it last, and in which period: each state is told once in each.
    Column("told", Text, nullable=False),
    Column("told_of_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "id", name="budgets_pkey"),
    UniqueConstraint("tenant_id", "scope", "name", "period", name="budgets_scope_key"),
    info=kept(Retention.REGISTERED),
)

cost_observations = Table(
    "cost_observations",
    metadata,
    Column("execution_id", TimedId, nullable=False),
    Column("id", Text, nullable=False),  # step, attempt and call: the same cost told twice is counted once
    Column("tenant_id", Text, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("agent", Text, nullable=False),
    Column("resource", Text, nullable=False),  # a model, a tool, a service
    Column("microdollars", BigInteger),  # none: nobody knows its price
    *(Column(f"tokens_{kind}", BigInteger, nullable=False) for kind in TOKEN_KINDS),  # which do not overlap
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("execution_id", "id", name="cost_observations_pkey"),
    Index("cost_observations_by_time", "tenant_id", "at_ms"),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.COST, day_key="execution_id"),
)

# A secret's name and where its value lies; the value never enters this database.
secrets = Table(
    "secrets",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("domains", JSON, nullable=False),  # where the egress proxy may present it
    Column("created_at_ms", BigInteger, nullable=False),
    Column("rotated_at_ms", BigInteger),
    PrimaryKeyConstraint("tenant_id", "name", name="secrets_pkey"),
    info=kept(Retention.REGISTERED),
)

# Where the immutable record of an execution lies in the artifact store, and what can be asked once its history is gone.
snapshots = Table(
    "snapshots",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("id", TimedId, nullable=False),
    Column("execution_id", TimedId, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("workflow_version", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("ended_at_ms", BigInteger),  # of the execution, at that version
    Column("digest", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("execution_id", "id", name="snapshots_pkey"),
    UniqueConstraint("execution_id", "version", name="snapshots_version_key"),
    Index("snapshots_by_time", "tenant_id", "created_at_ms", "id"),
    Index("snapshots_by_id", "tenant_id", "id"),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.SNAPSHOT, day_key="execution_id"),
)
