"""Who owns which shard, and what was fixed when this database was first used. No tenant sees either."""

from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, SmallInteger, Table, Text

from control_plane.storage.tables.types import Retention, kept, metadata

shard_leases = Table(
    "shard_leases",
    metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("epoch", Integer, nullable=False),  # grows with every change of hands, and never shrinks
    Column("holder", Text),  # nobody, after a clean release
    Column("expires_at_ms", BigInteger, nullable=False),  # by the database's clock
    PrimaryKeyConstraint("shard", name="shard_leases_pkey"),
    info=kept(Retention.DEPLOYMENT),
)

deployment = Table(
    "deployment",
    metadata,
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("name", name="deployment_pkey"),
    info=kept(Retention.DEPLOYMENT),
)
