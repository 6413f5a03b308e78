"""The one collection of tables, the column types they share, and what is declared beside each table.

Every table says how long its rows are kept (`info["retention"]`) and, where they are removed a day at a time, by which
column (`info["day_key"]`). `control_plane.storage.days` and the purge jobs read it; tests fail for a table without it.
"""

from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, Integer, MetaData, Text
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData()

# The mark of a column whose fields are encrypted where there are keys: see `control_plane.storage.sealing`.
SENSITIVE = {"sensitive": True}

# An event as `agentflow.execution.events.encode` wrote it; read it with a cast to text. PostgreSQL's `json` keeps
# that text and checks that it is JSON. `jsonb` would not do for facts: it refuses "\u0000" and turns the number 1e16
# into an integer, which a typed condition then sees as another type.
JsonText = Text().with_variant(JSON(), "postgresql")

# What people look for by a field inside it; never a fact of record.
SearchableJson = JSON().with_variant(JSONB(), "postgresql")

# SQLite counts by itself only in a column that is literally INTEGER PRIMARY KEY (64 bits all the same).
Counter = BigInteger().with_variant(Integer(), "sqlite")

# An id that begins with its kind and a ULID, so that its order is the order of time: byte by byte on both engines.
TimedId = Text().with_variant(Text(collation="C"), "postgresql")


class Retention(StrEnum):
    """How long a row is kept, and from when on. The lengths are the purge jobs' to choose, for each tenant."""

    HISTORY = "history"  # from the end of the execution it belongs to
    AUDIT = "audit"  # from when it was recorded
    COST = "cost"  # from the end of the execution it was spent on
    SNAPSHOT = "snapshot"  # from when it was taken
    JOB = "job"  # from when it was asked for
    AGENT_STATE = "agent_state"  # from when a newer one took its place
    REQUEST = "request"  # as long as the execution that the request made
    REGISTERED = "registered"  # until its owner removes it
    TENANT = "tenant"  # as long as the tenant
    TRANSIENT = "transient"  # moments: a queue that drains itself
    DEPLOYMENT = "deployment"  # as long as the database


def kept(retention: Retention, *, day_key: str | None = None) -> dict[str, Any]:
    """`day_key` is a `TimedId`: under PostgreSQL the table is divided into days by it, and a day is dropped whole."""
    return {"retention": retention} if day_key is None else {"retention": retention, "day_key": day_key}
