"""Lets schedules fire: holds those there are in memory, sleeps until the next is due, starts, remembers.

Each schedule is one replica's to watch, the one that owns the shard of its id; should two believe to be, a moment still
has one execution. The database is asked when something is due or was said to have changed, and twice a minute in case
that word got lost: an idle deployment costs it next to nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.execution.state import Status
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import MessageBus
from control_plane.schedules import firing
from control_plane.schedules.book import CHANGED
from control_plane.schedules.schedule import Fire, Schedule, ScheduleStore

# Starts an execution of a workflow under an id; a second time it only looks. Raises what a start raises.
Starter = Callable[[TenantId, str, Any, ExecutionId], Awaitable[None]]

_log = structlog.get_logger(__name__)

_LOOK_S = 30.0
_NAP_S = 5.0  # wall clocks jump; nothing fires later than this because of it
_AGAIN_S = 1.0  # after a failure, and while moments wait for an execution to end
_OPEN = frozenset({Status.NEW, Status.QUEUED, Status.RUNNING, Status.PAUSED})


class Clockwork:
    def __init__(
        self, store: ScheduleStore, *, start: Starter, is_ours: Callable[[str], bool], bus: MessageBus, clock: Clock
    ) -> None:
        self._store = store
        self._start = start
        self._is_ours = is_ours
        self._bus = bus
        self._clock = clock
        self._known: dict[str, Schedule] = {}
        self._changed = asyncio.Event()
        self._read_s = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For as long as the block lasts."""
        listening = await self._bus.listen(CHANGED, lambda _: self._look_again())
        ticking = asyncio.create_task(self._run(), name="schedules")
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await listening.stop()

    def _look_again(self) -> None:
        self._read_s = float("-inf")
        self._changed.set()

    async def _run(self) -> None:
        while True:
            try:
                nap_s = await self.tick()
            except Unavailable as error:
                _log.warning("schedules.postponed", reason=error.message)
                nap_s = _AGAIN_S
            with suppress(TimeoutError):
                async with asyncio.timeout(nap_s):
                    await self._changed.wait()
            self._changed.clear()

    async def tick(self) -> float:
        """Let fire what is due; how long there is nothing to do."""
        if self._clock.monotonic_s() - self._read_s >= _LOOK_S:
            read_s = self._clock.monotonic_s()
            self._known = {one.id: one for one in await self._store.active()}
            self._read_s = read_s
        now = self._clock.now_ms()
        due = [one for one in self._known.values() if self._is_ours(one.id) and _is_due(one, now)]
        ended = await self._ended(due)
        fired = [await self._fired(schedule, now, ended) for schedule in due]
        if not all(fired) or any(one.progress.waiting for one in self._known.values() if self._is_ours(one.id)):
            return _AGAIN_S
        moments = [at_ms for at_ms in map(firing.due_ms, self._known.values()) if at_ms is not None]
        return max(0.0, min(_NAP_S, (min(moments, default=now + 3_600_000) - now) / 1000))

    async def _ended(self, schedules: list[Schedule]) -> frozenset[ExecutionId]:
        believed = [execution for one in schedules for execution in one.progress.open]
        if not believed:
            return frozenset()
        statuses = await self._store.statuses(believed)
        return frozenset(one for one in believed if statuses.get(one) not in _OPEN)

    async def _fired(self, schedule: Schedule, now: int, ended: frozenset[ExecutionId]) -> bool:
        """False when it has to be tried again soon: a schedule that cannot start holds up no other."""
        try:
            await self._fire(schedule, now, ended)
        except Unavailable as error:
            _log.warning("schedule.postponed", schedule=schedule.name, reason=error.message)
            return False
        return True

    async def _fire(self, schedule: Schedule, now: int, ended: frozenset[ExecutionId]) -> None:
        turn = firing.turn(schedule, now_ms=now, ended=ended)
        if turn is None:
            return
        fires = [await self._started(schedule, at_ms) for at_ms in turn.starts]
        after = _next(firing.with_fires(turn.after, fires), schedule)
        if await self._store.replace(after):
            self._known[after.id] = after
            return
        self._look_again()  # changed or removed meanwhile; what was started has been started
        newer = await self._store.named(schedule.tenant, schedule.name)
        if newer is not None and newer.id == schedule.id:
            told = firing.with_fires(newer, firing.left_to_tell(newer, schedule, fires))
            if told != newer:
                await self._store.replace(_next(told, newer))

    async def _started(self, schedule: Schedule, at_ms: int) -> Fire:
        execution = firing.execution_of(schedule, at_ms)
        try:
            await self._start(schedule.tenant, schedule.workflow, schedule.input, execution)
        except Unavailable:
            raise  # the same moment again, soon
        except AgentFlowError as error:
            _log.warning("schedule.not_started", schedule=schedule.name, code=error.code, reason=error.message)
            return Fire(at_ms, "failed", reason=f"{error.code}: {error.message}")
        return Fire(at_ms, "started", execution)


def _next(after: Schedule, before: Schedule) -> Schedule:
    return msgspec.structs.replace(after, revision=before.revision + 1)


def _is_due(schedule: Schedule, now: int) -> bool:
    at_ms = firing.due_ms(schedule)
    return at_ms is not None and at_ms <= now
