"""Does the jobs. Each is taken for a while, and the taker says again and again that it still lives; where it does not,
another takes the job and begins it anew, so that none runs for ever. Handlers may therefore be called twice.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.ids import TenantId
from control_plane.jobs.job import Job, JobNotFound, JobStore, TooManyJobs

_log = structlog.get_logger(__name__)

Progress = Callable[[int, int], None]  # so many done, of so many
Handler = Callable[[TenantId, dict[str, Any], Progress], Awaitable[Any]]


class _Lost(Exception):
    """Another has taken the job."""


class Jobs:
    def __init__(
        self, store: JobStore, handlers: Mapping[str, Handler], *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._clock = clock
        self._new_id = new_id
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()

    def new_id(self) -> str:
        return f"job_{self._new_id()}"

    async def submit(self, tenant: TenantId, kind: str, request: dict[str, Any], *, id: str | None = None) -> Job:
        """Durable when it returns. With the `id` of one that is there already, that one."""
        if await self._store.unfinished(tenant) >= limits.JOBS_UNFINISHED_MAX:
            raise TooManyJobs
        now = self._clock.now_ms()
        wanted = Job(
            tenant=tenant, id=id or self.new_id(), kind=kind, request=request, created_at_ms=now, updated_at_ms=now
        )
        job = await self._store.add(wanted)
        self._wake.set()
        return job

    async def find(self, tenant: TenantId, id: str) -> Job:
        job = await self._store.get(tenant, id)
        if job is None:
            raise JobNotFound(id)
        return job

    async def watch(self, tenant: TenantId, id: str) -> AsyncIterator[Job]:
        """The job as it is now and after each change that is seen, until it is over."""
        revision = -1
        while True:
            moved = self._moved
            job = await self.find(tenant, id)
            if job.revision != revision:
                revision = job.revision
                yield job
            if job.is_over:
                return
            with suppress(TimeoutError):  # another control plane may have it, and does not tell us
                async with asyncio.timeout(limits.LIVE_LOOK_S):
                    await moved.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For as long as the block lasts. What is left undone is taken up by another, or by us when we are back."""
        takers = [asyncio.create_task(self._take(), name="jobs") for _ in range(limits.JOBS_AT_ONCE)]
        try:
            yield
        finally:
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)

    async def _take(self) -> None:
        while True:
            self._wake.clear()
            try:
                job = await self._store.take(self._clock.now_ms(), until_ms=self._until_ms())
            except Unavailable as error:
                _log.warning("jobs.postponed", reason=error.message)
                job = None
            if job is not None:
                await self._do(job)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.JOBS_LOOK_S):
                    await self._wake.wait()

    def _until_ms(self) -> int:
        return self._clock.now_ms() + round(limits.JOB_LEASE_S * 1000)

    async def _do(self, job: Job) -> None:
        _log.info("job.begun", job=job.id, kind=job.kind, attempt=job.attempt)
        keeping = _Keeping(job, self._write)
        try:
            async with asyncio.TaskGroup() as tasks:
                keeper = tasks.create_task(self._keep(keeping))
                ended = await self._outcome(keeping)
                keeper.cancel()
            await self._write(ended)
        except* _Lost:
            _log.warning("job.lost", job=job.id)
        except* Unavailable as away:  # another takes it once the database is back
            _log.warning("job.left", job=job.id, reason=str(away.exceptions[0]))

    async def _outcome(self, keeping: "_Keeping") -> Job:
        job = keeping.job
        if job.attempt > limits.JOB_ATTEMPTS_MAX:
            error = f"{limits.JOB_ATTEMPTS_MAX} control planes were lost while they did it."
            return msgspec.structs.replace(job, status="failed", error=error)
        try:
            result = await self._handlers[job.kind](job.tenant, job.request, keeping.progress)
        except Unavailable:
            raise
        except AgentFlowError as error:
            return msgspec.structs.replace(keeping.job, status="failed", error=f"{error.code}: {error.message}")
        except Exception as error:  # noqa: BLE001 - a fault in one job must not stop the others
            _log.exception("job.broken", job=job.id)
            reason = f"AF9000: {type(error).__name__}: {error}"
            return msgspec.structs.replace(keeping.job, status="failed", error=reason)
        return msgspec.structs.replace(keeping.job, status="succeeded", result=result)

    async def _keep(self, keeping: "_Keeping") -> None:
        """Say how far it is, and that we live."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.JOB_LEASE_S / 3):
                    await keeping.moved.wait()
            await keeping.tell()
            await self._clock.sleep(limits.JOB_PROGRESS_S)

    async def _write(self, job: Job) -> None:
        changed = msgspec.structs.replace(job, updated_at_ms=self._clock.now_ms())
        if not await self._store.change(changed, until_ms=self._until_ms()):
            raise _Lost
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class _Keeping:
    """A job under way: what its handler says about it is written by its keeper."""

    def __init__(self, job: Job, write: Callable[[Job], Awaitable[None]]) -> None:
        self.job = job
        self.moved = asyncio.Event()
        self._write = write

    def progress(self, done: int, total: int) -> None:
        self.job = msgspec.structs.replace(self.job, done=done, total=total)
        self.moved.set()

    async def tell(self) -> None:
        self.moved.clear()
        await self._write(self.job)
