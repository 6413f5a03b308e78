"""One long operation as it is stored, and what is needed of the store."""

from typing import Any, Literal, Protocol

import msgspec

from agentflow import limits
from agentflow.errors import Limited, NotFound
from agentflow.ids import TenantId

JobStatus = Literal["queued", "running", "succeeded", "failed"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    tenant: TenantId
    id: str
    kind: str
    request: dict[str, Any]
    created_at_ms: int
    updated_at_ms: int
    status: JobStatus = "queued"
    done: int = 0
    total: int = 0
    result: Any = None
    error: str | None = None
    attempt: int = 0  # how often somebody began it: a control plane that dies with it leaves it to another
    revision: int = 0  # counted by the store: grows with every change

    @property
    def is_over(self) -> bool:
        return self.status in ("succeeded", "failed")


class JobStore(Protocol):
    async def add(self, job: Job) -> Job:
        """As it is stored: an id that is there already keeps what it stands for."""
        ...

    async def get(self, tenant: TenantId, id: str) -> Job | None: ...

    async def unfinished(self, tenant: TenantId) -> int: ...

    async def take(self, now_ms: int, *, until_ms: int) -> Job | None:
        """The oldest that waits, or whose taker has been silent past its time; taken until then."""
        ...

    async def change(self, job: Job, *, until_ms: int) -> bool:
        """Write how far it is, or its end. False where another has taken it since: then nothing is written."""
        ...


class JobNotFound(NotFound):
    code = "AF1280"

    def __init__(self, id: str) -> None:
        super().__init__(
            f"There is no job {id!r}.",
            hint="Jobs are kept for 30 days; the answer that began it named its id.",
        )


class TooManyJobs(Limited):
    code = "AF1281"

    def __init__(self) -> None:
        super().__init__(
            f"{limits.JOBS_UNFINISHED_MAX} jobs of this tenant are unfinished already.",
            hint="Wait until some are over, then ask again.",
            retry_after_s=limits.JOBS_LOOK_S,
        )
