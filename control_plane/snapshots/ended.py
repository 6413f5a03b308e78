"""Takes snapshots of executions that are over, for tenants where a deployment wants that.

What is to be taken follows from what is stored, so nothing is lost with whoever did it: the ends are read in the one
order of all events, and the place that was come to is stored. It goes on beside the executions under way and never
takes more than its share of the loop, so it may fall behind; the purge asks `before_purge`, and then none is missing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Protocol

import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.ids import ExecutionId, TenantId
from agentflow.limits import SNAPSHOT_ENDED_LOOK_S, SNAPSHOT_ENDED_REST
from control_plane.snapshots.taking import Taking

_log = structlog.get_logger(__name__)

ANY = "*"


class Ended(msgspec.Struct, frozen=True):
    """An execution that had come to its end at a version."""

    tenant: TenantId
    execution: ExecutionId
    version: int


class EndedPage(msgspec.Struct, frozen=True):
    ended: tuple[Ended, ...]
    position: int  # where the next page begins; nothing at or below it can appear any more


class Endings(Protocol):
    async def page(self, *, after: int) -> EndedPage:
        """The executions that ended, in the order of all events; a page may be empty and still lead on."""
        ...

    async def untaken(self, tenant: TenantId, executions: Sequence[ExecutionId]) -> Sequence[Ended]:
        """Those of them without a snapshot of their newest version."""
        ...

    async def place(self) -> int:
        """How far it has come. Where nobody has begun: here, and from now on."""
        ...

    async def move(self, place: int, to: int) -> bool:
        """False where another has moved it on meanwhile."""
        ...


class SnapshotsOfEnded:
    def __init__(self, taking: Taking, endings: Endings, *, tenants: frozenset[str], clock: Clock) -> None:
        self._taking = taking
        self._endings = endings
        self._tenants = tenants
        self._clock = clock

    def wanted(self, tenant: TenantId) -> bool:
        return ANY in self._tenants or tenant in self._tenants

    async def before_purge(self, tenant: TenantId, executions: Sequence[ExecutionId]) -> None:
        """Once this returns, the history of these may go."""
        for one in await self._endings.untaken(tenant, executions) if self.wanted(tenant) else ():
            await self._taken(one)

    @asynccontextmanager
    async def following(self, is_ours: Callable[[str], bool]) -> AsyncIterator[None]:
        """For as long as the block lasts, on whichever control plane it belongs to."""
        if not self._tenants:
            yield
            return
        task = asyncio.create_task(self._follow(is_ours), name="snapshots of what has ended")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, is_ours: Callable[[str], bool]) -> None:
        while True:
            more = False
            try:
                if is_ours(__name__):
                    more = await self.step()
            except Unavailable as error:
                _log.warning("snapshots.postponed", reason=error.message)
            if not more:
                await self._clock.sleep(SNAPSHOT_ENDED_LOOK_S)

    async def step(self) -> bool:
        """Take those of the next page. False where there is nothing new."""
        place = await self._endings.place()
        page = await self._endings.page(after=place)
        for one in page.ended:
            if self.wanted(one.tenant):
                await self._taken(one)
        return page.position > place and await self._endings.move(place, page.position)

    async def _taken(self, ended: Ended) -> None:
        """What is away for the moment is asked for again; what cannot be recorded at all keeps nobody else waiting."""
        begun = perf_counter()
        try:
            await self._taking.take(ended.tenant, ended.execution, ended.version)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - one record that is broken, however it is, must not stop the purge
            _log.exception("snapshot.not_taken", execution=ended.execution)
        await self._clock.sleep((perf_counter() - begun) * SNAPSHOT_ENDED_REST)
