"""What executions leave behind: their events, and what follows from them.

Under PostgreSQL every table here is divided by the execution's id, and so by the day it began: one execution is whole
in one part of each, which keeps unique keys honest and lets a day be dropped (see `control_plane.storage.days`).
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from control_plane.storage.tables.types import SENSITIVE, Counter, JsonText, Retention, TimedId, kept, metadata

# What lists and recovery ask for. It follows from the events and is written in their transaction.
executions = Table(
    "executions",
    metadata,
    Column("id", TimedId, nullable=False),
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
    Index("executions_by_start", "tenant_id", "started_at_ms", "id"),
    Index("executions_by_status", "tenant_id", "status", "started_at_ms", "id"),
    Index("executions_by_workflow", "tenant_id", "workflow_name", "started_at_ms", "id"),
    # Only open executions are in it: it stays as small as what is under way, and answers without the table.
    Index(
        "executions_open_by_shard",
        "shard",
        "id",
        postgresql_where=text("ended_at_ms IS NULL"),
        sqlite_where=text("ended_at_ms IS NULL"),
    ),
    postgresql_partition_by="RANGE (id)",
    info=kept(Retention.HISTORY, day_key="id"),
)

event_store = Table(
    "event_store",
    metadata,
    # The order of writing. Under PostgreSQL a lower position may become visible after a higher one: see `stream`.
    Column("position", Counter, Identity(always=True), nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("execution_id", TimedId, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("event_data", JsonText, nullable=False, info=SENSITIVE),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),  # of the lease under which it was written
    # PostgreSQL lets no key of a divided table leave out what divides it; there an index gives the order.
    PrimaryKeyConstraint("position", name="event_store_pkey").ddl_if(dialect="sqlite"),
    Index("event_store_by_position", "position").ddl_if(dialect="postgresql"),
    # The guard against two writers: a version of an execution can be written once.
    UniqueConstraint("execution_id", "version", name="event_store_version_key"),
    postgresql_partition_by="RANGE (execution_id)",
    sqlite_autoincrement=True,  # a position is never given twice, also after the newest events were removed
    info=kept(Retention.HISTORY, day_key="execution_id"),
)

# The newest state of executions with a long history, so that taking one up does not fold all of it again.
execution_snapshots = Table(
    "execution_snapshots",
    metadata,
    Column("execution_id", TimedId, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("format", Text, nullable=False),
    Column("state", LargeBinary, nullable=False, info=SENSITIVE),
    PrimaryKeyConstraint("execution_id", name="execution_snapshots_pkey"),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.HISTORY, day_key="execution_id"),
)

# The plan of an execution as people look at it: how far the events have been read into its steps, and the steps.
plans = Table(
    "plans",
    metadata,
    Column("execution_id", TimedId, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    PrimaryKeyConstraint("execution_id", name="plans_pkey"),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.HISTORY, day_key="execution_id"),
)

plan_steps = Table(
    "plan_steps",
    metadata,
    Column("execution_id", TimedId, nullable=False),
    Column("path", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),  # the version of the event that first asked for it
    Column("name", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("tool", Text),
    Column("status", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", Text),
    Column("fault", Text),
    Column("scheduled_at_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
    PrimaryKeyConstraint("execution_id", "path", name="plan_steps_pkey"),
    Index("plan_steps_in_order", "execution_id", "number"),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.HISTORY, day_key="execution_id"),
)

# What executions have put before people. It follows from the events and is written in their transaction; what a task
# says is in the event that opened it, encrypted where there are keys.
human_tasks = Table(
    "human_tasks",
    metadata,
    Column("execution_id", TimedId, nullable=False),
    Column("path", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),  # of the event that opened it
    Column("status", Text, nullable=False),
    Column("opened_at_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
    PrimaryKeyConstraint("execution_id", "path", name="human_tasks_pkey"),
    Index(
        "human_tasks_pending",
        "tenant_id",
        "opened_at_ms",
        "execution_id",
        "path",
        postgresql_where=text("ended_at_ms IS NULL"),
        sqlite_where=text("ended_at_ms IS NULL"),
    ),
    postgresql_partition_by="RANGE (execution_id)",
    info=kept(Retention.HISTORY, day_key="execution_id"),
)
