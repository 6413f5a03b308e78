"""The one collection of tables, and the column types they share."""

from sqlalchemy import JSON, BigInteger, Integer, MetaData, Text

metadata = MetaData()

# An event as `agentflow.execution.events.encode` wrote it; read it with a cast to text. PostgreSQL's `json` keeps
# that text and checks that it is JSON. `jsonb` would not do for facts: it refuses "\u0000" and turns the number 1e16
# into an integer, which a typed condition then sees as another type.
JsonText = Text().with_variant(JSON(), "postgresql")

# SQLite counts by itself only in a column that is literally INTEGER PRIMARY KEY (64 bits all the same).
Counter = BigInteger().with_variant(Integer(), "sqlite")
