"""A history as a real database holds it. Reads the tables themselves, on either engine, and nothing else."""

from functools import partial

from sqlalchemy import Text, cast, func, select

from agentflow.clock import SystemClock
from agentflow.execution.events import decode
from agentflow.execution.state import Status
from agentflow.ids import ExecutionId, TenantId, shard_of
from control_plane.storage.database import database
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.state_snapshots import FORMAT, unpacked
from control_plane.storage.tables import deployment, event_store, execution_snapshots, executions
from tests.invariants.history import Held, History, Kept, Listed, Recorded, Reign

_EVENTS = select(event_store, cast(event_store.c.event_data, Text).label("data")).order_by(event_store.c.position)
_SHARDS = select(deployment.c.value).where(deployment.c.name == "shards")
_SNAPSHOTS = select(execution_snapshots).where(execution_snapshots.c.format == FORMAT)


async def stored_history(dsn: str) -> History:
    """What the database says, now. Add what clients and workers saw with `msgspec.structs.replace`."""
    async with database(dsn) as db:
        held = await SqlShardLeases(db).leases()
        async with db.system_read() as connection:
            shard = partial(shard_of, shards=int(await connection.scalar(_SHARDS) or 0))
            written = (await connection.execute(_EVENTS)).all()
            listed = (await connection.execute(select(executions))).all()
            kept = (await connection.execute(_SNAPSHOTS)).all()
    return History(
        at_ms=SystemClock().now_ms(),
        events=tuple(
            Recorded(
                row.position,
                TenantId(row.tenant_id),
                ExecutionId(row.execution_id),
                shard(ExecutionId(row.execution_id)),
                row.version,
                row.epoch,
                decode(row.data),
            )
            for row in written
        ),
        listed=tuple(
            Listed(
                ExecutionId(row.id),
                TenantId(row.tenant_id),
                Status(row.status),
                row.shard,
                row.started_at_ms,
                row.ended_at_ms,
            )
            for row in listed
        ),
        snapshots=tuple(Kept(ExecutionId(row.execution_id), row.version, unpacked(row.state)) for row in kept),
        leases=tuple(Held(one.shard, one.epoch, one.holder, one.left_s) for one in held),
    )


async def reigns_now(dsn: str) -> tuple[Reign, ...]:
    """Who may write from now on. An append keeps its leases locked until it is committed, so none is under way here
    that an epoch read before it would not allow."""
    async with database(dsn) as db:
        held = await SqlShardLeases(db).leases()
        async with db.system_read() as connection:
            written = int(await connection.scalar(select(func.max(event_store.c.position))) or 0)
    return tuple(Reign(one.shard, one.epoch, written) for one in held)
