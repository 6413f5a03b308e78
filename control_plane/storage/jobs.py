"""Jobs as rows; implements `control_plane.jobs.job.JobStore`."""

from typing import Any

from sqlalchemy import RowMapping, and_, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.errors import Bug
from agentflow.ids import TenantId
from control_plane.jobs.job import Job
from control_plane.storage.database import Database
from control_plane.storage.tables import jobs

_UNFINISHED = ("queued", "running")


class SqlJobs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, job: Job) -> Job:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_there = insert(jobs).on_conflict_do_nothing(index_elements=["tenant_id", "id"])
        fixed = {"tenant_id": job.tenant, "id": job.id, "kind": job.kind, "request": job.request}
        async with self._database.write(job.tenant) as connection:
            await connection.execute(unless_there, {**fixed, "created_at_ms": job.created_at_ms, **_moving(job)})
        stored = await self.get(job.tenant, job.id)
        if stored is None:
            raise Bug(f"The job {job.id} was stored but cannot be read back.")
        return stored

    async def get(self, tenant: TenantId, id: str) -> Job | None:
        query = select(jobs).where(jobs.c.tenant_id == tenant, jobs.c.id == id)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else _job(row)

    async def unfinished(self, tenant: TenantId) -> int:
        query = select(func.count()).where(jobs.c.tenant_id == tenant, jobs.c.status.in_(_UNFINISHED))
        async with self._database.read(tenant) as connection:
            return int(await connection.scalar(query) or 0)

    async def take(self, now_ms: int, *, until_ms: int) -> Job | None:
        free = or_(jobs.c.status == "queued", and_(jobs.c.status == "running", jobs.c.taken_until_ms < now_ms))
        oldest = select(jobs.c.tenant_id, jobs.c.id).where(free).order_by(jobs.c.id).limit(1)
        taken = {
            "status": "running",
            "taken_until_ms": until_ms,
            "updated_at_ms": now_ms,
            "attempt": jobs.c.attempt + 1,
            "revision": jobs.c.revision + 1,
        }
        async with self._database.system_read() as connection:  # mostly there is none, and then nothing is locked
            found = (await connection.execute(oldest)).one_or_none()
        if found is None:
            return None
        this = update(jobs).where(jobs.c.tenant_id == found.tenant_id, jobs.c.id == found.id, free)
        async with self._database.system_write() as connection:
            row = (await connection.execute(this.values(taken).returning(*jobs.c))).mappings().one_or_none()
        return None if row is None else _job(row)

    async def change(self, job: Job, *, until_ms: int) -> bool:
        mine = update(jobs).where(
            jobs.c.tenant_id == job.tenant,
            jobs.c.id == job.id,
            jobs.c.attempt == job.attempt,
            jobs.c.status == "running",
        )
        until = None if job.is_over else until_ms
        changed = {**_moving(job), "revision": jobs.c.revision + 1, "taken_until_ms": until}
        async with self._database.write(job.tenant) as connection:
            return (await connection.execute(mine.values(changed))).rowcount == 1


def _moving(job: Job) -> dict[str, Any]:
    return {
        "status": job.status,
        "done": job.done,
        "total": job.total,
        "result": job.result,
        "error": job.error,
        "attempt": job.attempt,
        "revision": job.revision,
        "updated_at_ms": job.updated_at_ms,
    }


def _job(row: RowMapping) -> Job:
    values = dict(row)
    values.pop("taken_until_ms")
    return Job(tenant=TenantId(values.pop("tenant_id")), **values)
