"""Makes the projections anew from the events: lists of executions and of tasks, and plans. The rows come out the same.

Works while control planes run: each page of executions is one transaction that holds every lease, so no append can fall
between reading an execution's events and writing what follows from them.
"""

from collections.abc import Sequence
from functools import reduce

import msgspec
from sqlalchemy import Text, cast, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.execution.events import decode
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, shard_of
from agentflow.limits import REBUILD_AT_ONCE
from control_plane.registry.tasks import task_changes
from control_plane.storage.append import execution_row, task_row
from control_plane.storage.database import Database
from control_plane.storage.plans import project
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.tables import (
    deployment,
    event_store,
    executions,
    human_tasks,
    plan_steps,
    plans,
    shard_leases,
)


class Rebuilt(msgspec.Struct, frozen=True):
    executions: int
    events: int


async def rebuild(database: Database, *, seal: FieldSeal = PLAIN) -> Rebuilt:
    async with database.system_read() as connection:
        recorded = await connection.scalar(select(deployment.c.value).where(deployment.c.name == "shards"))
    shards = int(recorded or 1)
    done = Rebuilt(0, 0)
    after = ""
    while True:
        async with database.system_write() as connection:
            await connection.execute(
                select(shard_leases.c.shard).order_by(shard_leases.c.shard).with_for_update(key_share=True)
            )
            page = await _page(connection, after)
            if not page:
                await _forget(connection, after, None)
                return done
            await _forget(connection, after, page[-1])
            events = 0
            for execution in page:
                events += await _rebuild_one(connection, database, execution, shards, seal)
        done = Rebuilt(done.executions + len(page), done.events + events)
        after = page[-1]


async def _page(connection: AsyncConnection, after: str) -> Sequence[ExecutionId]:
    query = (
        select(event_store.c.execution_id)
        .where(event_store.c.execution_id > after, event_store.c.version == 1)
        .order_by(event_store.c.execution_id)
        .limit(REBUILD_AT_ONCE)
    )
    return [ExecutionId(execution) for execution in await connection.scalars(query)]


async def _forget(connection: AsyncConnection, after: str, last: str | None) -> None:
    """What the projections say about this range of ids, including what no event tells of."""
    for key in (executions.c.id, plans.c.execution_id, plan_steps.c.execution_id, human_tasks.c.execution_id):
        in_range = key > after if last is None else (key > after) & (key <= last)
        await connection.execute(delete(key.table).where(in_range))


async def _rebuild_one(
    connection: AsyncConnection, database: Database, execution: ExecutionId, shards: int, seal: FieldSeal
) -> int:
    query = (
        select(event_store.c.tenant_id, event_store.c.version, cast(event_store.c.event_data, Text))
        .where(event_store.c.execution_id == execution)
        .order_by(event_store.c.version)
    )
    events = [
        (version, decode(seal.opened_event(tenant, execution, version, data)))
        for tenant, version, data in await connection.execute(query)
    ]
    state = reduce(evolve, (event for _, event in events), ExecutionState())
    await connection.execute(insert(executions).values(execution_row(execution, shard_of(execution, shards), state)))
    await project(connection, database.engine, state.tenant, execution, events)
    read = {"execution_id": execution, "tenant_id": state.tenant, "version": state.version}
    await connection.execute(insert(plans).values(read))
    opened, _ = task_changes(events)
    if opened:
        lines = [task_row(execution, state.tenant, line) for line in opened]
        await connection.execute(insert(human_tasks).values(lines))
    return len(events)
