"""How much room there is for executions that have a limit; implements `control_plane.orchestrator.admission.Room`.

One row for each that queues or has begun, and one tenant's rows are counted by one transaction at a time, so that two
replicas can never both give away the last place. Who has ended is read from the list of executions, which is in step
with the events: a place is never lost, whoever died when.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from typing import Any

from sqlalchemy import Row, delete, func, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.clock import Clock
from agentflow.execution.state import Status
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import ADMIT_AT_ONCE
from control_plane.orchestrator.admission import Entrant
from control_plane.storage.database import Database
from control_plane.storage.tables import admissions, executions

# One at a time for each tenant, until the transaction ends. SQLite has one writer anyway.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended(:tenant, 4217))")


class SqlRoom:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def admit(
        self, tenant: TenantId, entering: Sequence[Entrant], *, tenant_max: int | None
    ) -> Sequence[ExecutionId]:
        async with self._database.system_write() as connection:
            if self._database.engine == "postgresql":
                await connection.execute(_ONE_AT_A_TIME, {"tenant": tenant})
            await self._enter(connection, entering)
            await _forget_ended(connection, tenant)
            chosen = await _chosen(connection, tenant, tenant_max)
            if chosen:
                begun = update(admissions).where(
                    admissions.c.tenant_id == tenant, admissions.c.execution_id.in_(chosen)
                )
                await connection.execute(begun.values(admitted_at_ms=self._clock.now_ms()))
            return await _not_begun(connection, tenant)

    async def _enter(self, connection: AsyncConnection, entering: Sequence[Entrant]) -> None:
        if not entering:
            return
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_there = insert(admissions).on_conflict_do_nothing(index_elements=["tenant_id", "execution_id"])
        await connection.execute(
            unless_there,
            [
                {
                    "tenant_id": one.tenant,
                    "execution_id": one.execution,
                    "workflow": one.workflow,
                    "rank": -one.priority,
                    "since_ms": one.since_ms,
                    "workflow_max": one.workflow_max,
                    "of_tenant": int(one.of_tenant),
                }
                for one in entering
            ],
        )


async def _forget_ended(connection: AsyncConnection, tenant: TenantId) -> None:
    """Among those that have room. Who ended while waiting is found when its turn comes."""
    open_still = (
        select(executions.c.id)
        .where(executions.c.id == admissions.c.execution_id, executions.c.ended_at_ms.is_(None))
        .correlate(admissions)
    )
    ended = admissions.c.admitted_at_ms.is_not(None) & ~open_still.exists()
    await connection.execute(delete(admissions).where(admissions.c.tenant_id == tenant, ended))


async def _chosen(connection: AsyncConnection, tenant: TenantId, tenant_max: int | None) -> list[ExecutionId]:
    counted = select(admissions.c.workflow, admissions.c.of_tenant, func.count()).where(
        admissions.c.tenant_id == tenant, admissions.c.admitted_at_ms.is_not(None)
    )
    of_workflow: Counter[str] = Counter()
    of_tenant = 0
    grouped = counted.group_by(admissions.c.workflow, admissions.c.of_tenant)
    for workflow, counts, number in await connection.execute(grouped):
        of_workflow[workflow] += number
        of_tenant += number if counts else 0
    chosen: list[ExecutionId] = []
    lines = [await _line(connection, tenant, workflow) for workflow in await _waiting(connection, tenant)]
    full: set[str] = set()
    for one in merge(*lines, key=lambda row: (row.rank, row.since_ms, row.execution_id)):
        if one.workflow in full or (one.of_tenant and tenant_max is not None and of_tenant >= tenant_max):
            continue
        if one.workflow_max is not None and of_workflow[one.workflow] >= one.workflow_max:
            full.add(one.workflow)  # nobody of this workflow overtakes who came first
            continue
        of_workflow[one.workflow] += 1
        of_tenant += one.of_tenant
        chosen.append(one.execution_id)
        if len(chosen) == ADMIT_AT_ONCE:
            break
    return chosen


async def _waiting(connection: AsyncConnection, tenant: TenantId) -> list[str]:
    query = select(admissions.c.workflow).where(admissions.c.tenant_id == tenant, admissions.c.admitted_at_ms.is_(None))
    return list(await connection.scalars(query.distinct()))


async def _line(connection: AsyncConnection, tenant: TenantId, workflow: str) -> list[Row[*tuple[Any, ...]]]:
    """Those of a workflow that wait, in their order; who has ended meanwhile goes."""
    query = (
        select(
            admissions.c.execution_id,
            admissions.c.workflow,
            admissions.c.rank,
            admissions.c.since_ms,
            admissions.c.workflow_max,
            admissions.c.of_tenant,
            executions.c.status,
        )
        .outerjoin(executions, executions.c.id == admissions.c.execution_id)
        .where(
            admissions.c.tenant_id == tenant,
            admissions.c.workflow == workflow,
            admissions.c.admitted_at_ms.is_(None),
        )
        .order_by(admissions.c.rank, admissions.c.since_ms, admissions.c.execution_id)
        .limit(ADMIT_AT_ONCE)
    )
    while True:
        rows = (await connection.execute(query)).all()
        gone = [row.execution_id for row in rows if row.status != Status.QUEUED]
        if not gone:
            return list(rows)
        left = delete(admissions).where(admissions.c.tenant_id == tenant, admissions.c.execution_id.in_(gone))
        await connection.execute(left)


async def _not_begun(connection: AsyncConnection, tenant: TenantId) -> list[ExecutionId]:
    query = (
        select(admissions.c.execution_id)
        .join(executions, executions.c.id == admissions.c.execution_id)
        .where(
            admissions.c.tenant_id == tenant,
            admissions.c.admitted_at_ms.is_not(None),
            executions.c.status == Status.QUEUED,
        )
        .order_by(admissions.c.rank, admissions.c.since_ms, admissions.c.execution_id)
        .limit(ADMIT_AT_ONCE)
    )
    return [ExecutionId(execution) for execution in await connection.scalars(query)]
