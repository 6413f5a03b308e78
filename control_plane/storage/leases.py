"""Leases on shards, in the database and by its clock; implements `agentflow.ports.ShardLeases`.

A row for each shard. Its epoch grows whenever it changes hands, and every append locks the row while it checks that its
epoch is current (`control_plane.storage.append`): a takeover waits for appends under way, and none passes after it.
Rows are always locked in the order of shards, so nobody can wait for each other in a circle; and only for the length of
one statement, so a holder that stands still, or is cut off, cannot keep its rows from whoever comes after it.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import TextClause, bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.errors import Rejected
from agentflow.ports import Lease
from control_plane.storage.database import Database, EngineName
from control_plane.storage.tables import deployment, shard_leases

_NOW: dict[EngineName, str] = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}


class ShardsChanged(Rejected):
    code = "AF1251"

    def __init__(self, shown: str, recorded: str, asked: int) -> None:
        super().__init__(
            f"{shown[0].upper()}{shown[1:]} was set up with {recorded} shards, and AF_SHARDS asks for {asked}.",
            hint=f"Set AF_SHARDS={recorded}: the shard of an execution is fixed by its id and this number.",
        )


async def record_shards(database: Database, shards: int) -> None:
    """At every start: the first one fixes the number for the life of the database."""
    async with database.system_read() as connection:
        recorded = await connection.scalar(_RECORDED)
    if recorded is None:
        async with database.system_write() as connection:
            await connection.execute(_RECORD, {"value": str(shards)})
            recorded = await connection.scalar(_RECORDED)  # several may start at once
    if recorded != str(shards):
        raise ShardsChanged(database.shown, str(recorded), shards)


_RECORDED = select(deployment.c.value).where(deployment.c.name == "shards")
_RECORD = text("INSERT INTO deployment (name, value) VALUES ('shards', :value) ON CONFLICT (name) DO NOTHING")

_ADD = text("INSERT INTO shard_leases VALUES (:shard, 0, NULL, 0) ON CONFLICT (shard) DO NOTHING")


class SqlShardLeases:
    def __init__(self, database: Database) -> None:
        self._database = database
        now = _NOW[database.engine]
        # PostgreSQL has no order of locking in an UPDATE, so the rows are locked by a query before it.
        in_order = " ORDER BY shard FOR NO KEY UPDATE" if database.engine == "postgresql" else ""
        self._acquire = text(
            f"""
            UPDATE shard_leases SET holder = :holder, expires_at_ms = {now} + :lease_ms,
                epoch = CASE WHEN holder = :holder THEN epoch ELSE epoch + 1 END
            WHERE shard IN (SELECT shard FROM shard_leases WHERE shard IN :shards{in_order})
            AND (:steal = 1 OR holder IS NULL OR holder = :holder OR expires_at_ms <= {now})
            RETURNING shard, epoch
            """  # noqa: S608 - the clock's name, one of ours
        ).bindparams(bindparam("shards", expanding=True))
        self._renew = text(
            f"""
            UPDATE shard_leases SET expires_at_ms = {now} + :lease_ms
            WHERE shard IN (SELECT shard FROM shard_leases WHERE holder = :holder{in_order}) AND holder = :holder
            RETURNING shard, epoch
            """  # noqa: S608
        )
        self._release = text(
            f"""
            UPDATE shard_leases SET holder = NULL, expires_at_ms = 0, epoch = epoch + 1
            WHERE shard IN (SELECT shard FROM shard_leases WHERE shard IN :shards{in_order}) AND holder = :holder
            """  # noqa: S608
        ).bindparams(bindparam("shards", expanding=True))
        self._leases = text(f"SELECT shard, epoch, holder, expires_at_ms - {now} FROM shard_leases ORDER BY shard")  # noqa: S608

    async def acquire(
        self, shards: Sequence[int], holder: str, *, lease_s: float, steal: bool = False
    ) -> dict[int, int]:
        if not shards:
            return {}
        wanted = {"shards": list(shards), "holder": holder, "lease_ms": int(lease_s * 1000), "steal": int(steal)}
        async with self._database.system_statement() as connection:
            await self._add_missing(connection, shards)
            return await _epochs(connection, self._acquire, wanted)

    async def _add_missing(self, connection: AsyncConnection, shards: Sequence[int]) -> None:
        there = set(await connection.scalars(select(shard_leases.c.shard).where(shard_leases.c.shard.in_(shards))))
        missing = [{"shard": shard} for shard in sorted(shards) if shard not in there]
        if missing:
            await connection.execute(_ADD, missing)

    async def renew(self, holder: str, *, lease_s: float) -> dict[int, int]:
        async with self._database.system_statement() as connection:
            return await _epochs(connection, self._renew, {"holder": holder, "lease_ms": int(lease_s * 1000)})

    async def release(self, holder: str, shards: Sequence[int] | None = None) -> None:
        if shards is None:
            shards = [lease.shard for lease in await self.leases() if lease.holder == holder]
        if shards:
            async with self._database.system_statement() as connection:
                await connection.execute(self._release, {"holder": holder, "shards": list(shards)})

    async def leases(self) -> Sequence[Lease]:
        async with self._database.system_read() as connection:
            found = await connection.execute(self._leases)
            return [Lease(shard, epoch, holder, left_ms / 1000) for shard, epoch, holder, left_ms in found]


async def _epochs(connection: AsyncConnection, statement: TextClause, values: Mapping[str, object]) -> dict[int, int]:
    return {row.shard: row.epoch for row in await connection.execute(statement, dict(values))}
