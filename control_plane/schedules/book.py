"""The schedules of a tenant: made, listed, paused, resumed, removed.

Says on the bus that something changed, so that whoever lets schedules fire looks again; a lost word costs seconds.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Bug, Unavailable
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import MessageBus
from control_plane.audit.notes import concerning
from control_plane.schedules.firing import with_fires
from control_plane.schedules.schedule import (
    Fire,
    InvalidSchedule,
    Schedule,
    ScheduleNotFound,
    ScheduleStore,
    ScheduleTaken,
)
from control_plane.schedules.times import Spec, next_moment, problems

CHANGED = "control.schedules"  # broadcast: a schedule was made, changed or removed
_TRIES = 10


class ScheduleBook:
    def __init__(
        self,
        store: ScheduleStore,
        *,
        bus: MessageBus,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._new_id = new_id

    async def create(
        self, tenant: TenantId, name: str, workflow: str, input: Any, spec: Spec, *, paused: bool = False
    ) -> tuple[Schedule, bool]:
        """The schedule, and whether it is new. The same again changes nothing."""
        if wrong := problems(spec):
            raise InvalidSchedule(name, wrong)
        now = self._clock.now_ms()
        candidate = Schedule(
            tenant=tenant,
            id=f"sch_{self._new_id()}",
            name=name,
            workflow=workflow,
            input=input,
            spec=spec,
            created_at_ms=now,
            next_at_ms=None if paused else next_moment(spec, after_ms=now),
            paused_at_ms=now if paused else None,
        )
        concerning("schedule", name, workflow=workflow)
        stored = await self._store.add(candidate)
        if (stored.workflow, stored.input, stored.spec) != (workflow, input, spec):
            raise ScheduleTaken(name)
        await self._say()
        return stored, stored.id == candidate.id

    async def list(self, tenant: TenantId, *, limit: int) -> Sequence[Schedule]:
        return await self._store.list(tenant, limit=limit)

    async def find(self, tenant: TenantId, name: str) -> Schedule:
        found = await self._store.named(tenant, name)
        if found is None:
            raise ScheduleNotFound(name)
        return found

    async def pause(self, tenant: TenantId, name: str) -> Schedule:
        """Fire no more. What it has started goes on; moments that waited for an end are dropped."""

        def paused(schedule: Schedule) -> Schedule:
            progress = msgspec.structs.replace(schedule.progress, waiting=())
            at_ms = schedule.paused_at_ms or self._clock.now_ms()
            return msgspec.structs.replace(schedule, next_at_ms=None, paused_at_ms=at_ms, progress=progress)

        return await self._changed(tenant, name, paused)

    async def resume(self, tenant: TenantId, name: str) -> Schedule:
        """Go on with the next moment from now; what passed meanwhile is not made up for."""

        def resumed(schedule: Schedule) -> Schedule:
            if schedule.paused_at_ms is None:
                return schedule
            next_at_ms = next_moment(schedule.spec, after_ms=self._clock.now_ms())
            return msgspec.structs.replace(schedule, paused_at_ms=None, next_at_ms=next_at_ms)

        return await self._changed(tenant, name, resumed)

    async def remove(self, tenant: TenantId, name: str) -> None:
        found = await self.find(tenant, name)
        await self._store.remove(tenant, found.id)
        await self._say()

    async def fired_by_hand(self, tenant: TenantId, name: str, execution: ExecutionId) -> None:
        """An execution was started beside its moments: remembered once."""
        at_ms = self._clock.now_ms()

        def with_it(newer: Schedule) -> Schedule:
            known = any(fire.execution == execution for fire in newer.progress.recent)
            return newer if known else with_fires(newer, [Fire(at_ms, "started", execution)])

        await self._changed(tenant, name, with_it)

    async def _changed(self, tenant: TenantId, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        for _ in range(_TRIES):
            before = await self.find(tenant, name)
            after = change(before)
            if after == before:
                return before
            after = msgspec.structs.replace(after, revision=before.revision + 1)
            if await self._store.replace(after):
                await self._say()
                return after
        raise Bug(f"The schedule {name} changed under our hands {_TRIES} times.")

    async def _say(self) -> None:
        with suppress(Unavailable):
            await self._bus.broadcast(CHANGED, b"")
