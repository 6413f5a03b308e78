"""Snapshots as rows, and what the steps of an execution used, for the one that is taken of it.

Implements `SnapshotStore` and `SpentOn` of `control_plane.snapshots`.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, RowMapping, and_, delete, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.contracts.snapshot import Spent
from agentflow.contracts.usage import TOKEN_KINDS, Usage
from agentflow.errors import Bug
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import LIST_COUNT_MAX
from control_plane.registry.executions import ListedWorkflow
from control_plane.snapshots.snapshot import Snapshot, SnapshotFilter, SnapshotPlace
from control_plane.storage.database import Database
from control_plane.storage.tables import cost_observations, snapshots

_spent = cost_observations.c


class SqlSnapshots:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, snapshot: Snapshot) -> Snapshot:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        once = insert(snapshots).on_conflict_do_nothing(index_elements=["execution_id", "version"])
        row = {
            "tenant_id": snapshot.tenant,
            "id": snapshot.id,
            "execution_id": snapshot.execution,
            "version": snapshot.version,
            "workflow_id": snapshot.workflow.id,
            "workflow_name": snapshot.workflow.name,
            "workflow_version": snapshot.workflow.version,
            "status": snapshot.status,
            "ended_at_ms": snapshot.ended_at_ms,
            "digest": snapshot.digest,
            "bytes": snapshot.bytes,
            "created_at_ms": snapshot.created_at_ms,
        }
        async with self._database.write(snapshot.tenant) as connection:
            await connection.execute(once, row)
        stored = await self.of_version(snapshot.tenant, snapshot.execution, snapshot.version)
        if stored is None:
            raise Bug(f"The snapshot {snapshot.id} was stored but cannot be read back.")
        return stored

    async def get(self, tenant: TenantId, snapshot: str) -> Snapshot | None:
        return await self._one(tenant, snapshots.c.id == snapshot)

    async def of_version(self, tenant: TenantId, execution: ExecutionId, version: int) -> Snapshot | None:
        return await self._one(tenant, and_(snapshots.c.execution_id == execution, snapshots.c.version == version))

    async def page(
        self,
        tenant: TenantId,
        wanted: SnapshotFilter,
        *,
        limit: int,
        after: SnapshotPlace | None,
        newest_first: bool,
    ) -> Sequence[Snapshot]:
        columns = (snapshots.c.created_at_ms, snapshots.c.id)
        query = select(snapshots).where(_fits(tenant, wanted))
        if after is not None:
            place, behind = tuple_(*columns), tuple_(after.created_at_ms, after.id)
            query = query.where(place < behind if newest_first else place > behind)
        query = query.order_by(*(column.desc() if newest_first else column for column in columns))
        async with self._database.read(tenant) as connection:
            return [_snapshot(row) for row in (await connection.execute(query.limit(limit))).mappings()]

    async def count(self, tenant: TenantId, wanted: SnapshotFilter) -> int:
        some = select(snapshots.c.id).where(_fits(tenant, wanted)).limit(LIST_COUNT_MAX)
        async with self._database.read(tenant) as connection:
            return await connection.scalar(select(func.count()).select_from(some.subquery())) or 0

    async def remove(self, tenant: TenantId, snapshot: str) -> bool:
        gone = delete(snapshots).where(snapshots.c.tenant_id == tenant, snapshots.c.id == snapshot)
        async with self._database.write(tenant) as connection:
            return (await connection.execute(gone)).rowcount == 1

    async def of_execution(self, tenant: TenantId, execution: ExecutionId) -> Sequence[Spent]:
        query = select(cost_observations).where(_spent.tenant_id == tenant, _spent.execution_id == execution)
        async with self._database.read(tenant) as connection:
            rows = await connection.execute(query.order_by(_spent.path, _spent.attempt, _spent.id))
        return [
            Spent(
                path=row.path,
                attempt=row.attempt,
                usage=Usage(
                    row.resource,
                    row.microdollars,
                    row.agent,
                    **{kind: getattr(row, f"tokens_{kind}") for kind in TOKEN_KINDS},
                ),
            )
            for row in rows
        ]

    async def _one(self, tenant: TenantId, which: ColumnElement[bool]) -> Snapshot | None:
        query = select(snapshots).where(snapshots.c.tenant_id == tenant, which)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else _snapshot(row)


def _fits(tenant: TenantId, wanted: SnapshotFilter) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = [snapshots.c.tenant_id == tenant]
    if wanted.execution is not None:
        conditions.append(snapshots.c.execution_id == wanted.execution)
    if wanted.workflow is not None:
        name, at, version = wanted.workflow.partition("@")
        by_id = not at and name.startswith("wf_")
        conditions.append((snapshots.c.workflow_id if by_id else snapshots.c.workflow_name) == name)
        if at:
            conditions.append(snapshots.c.workflow_version == version)
    if wanted.taken_from_ms is not None:
        conditions.append(snapshots.c.created_at_ms >= wanted.taken_from_ms)
    if wanted.taken_before_ms is not None:
        conditions.append(snapshots.c.created_at_ms < wanted.taken_before_ms)
    return and_(*conditions)


def _snapshot(row: RowMapping) -> Snapshot:
    values = dict(row)
    workflow = ListedWorkflow(*(values.pop(f"workflow_{part}") for part in ("id", "name", "version")))
    tenant, execution = values.pop("tenant_id"), values.pop("execution_id")
    return Snapshot(tenant=tenant, execution=execution, workflow=workflow, **values)
