"""Schedules: executions that begin by the clock. Part of the client."""

from typing import Any

import msgspec

from agentflow.sdk.models import Schedule, ScheduleList
from agentflow.sdk.requests import Requests, given, segment


class ScheduleRequests(Requests):
    async def create_schedule(self, name: str, workflow: str, input: Any = None, **when: Any) -> Schedule:
        """`when`: `cron` or `every`, and if wanted `timezone`, `overlap`, `catch_up`, `jitter`, `starts_at`, `ends_at`,
        `offset`, `paused`. Creating the same again changes nothing."""
        body = {"name": name, "workflow": workflow, "input": {} if input is None else input, **given(**when)}
        return await self._ask("POST", "/schedules", Schedule, body)

    async def schedules(self, *, limit: int | None = None) -> ScheduleList:
        return await self._get("/schedules", ScheduleList, given(limit=limit))

    async def schedule(self, name: str) -> Schedule:
        return await self._get(f"/schedules/{segment(name)}", Schedule)

    async def pause_schedule(self, name: str) -> Schedule:
        """Fire no more; what it has started goes on."""
        return await self._ask("POST", f"/schedules/{segment(name)}/pause", Schedule)

    async def resume_schedule(self, name: str) -> Schedule:
        return await self._ask("POST", f"/schedules/{segment(name)}/resume", Schedule)

    async def delete_schedule(self, name: str) -> None:
        await self._send("DELETE", f"/schedules/{segment(name)}")

    async def trigger_schedule(self, name: str, *, key: str | None = None) -> str:
        """Start an execution now, beside its moments; its id."""
        return (await self._ask("POST", f"/schedules/{segment(name)}/trigger", _Triggered, key=key)).execution_id


class _Triggered(msgspec.Struct, frozen=True):
    execution_id: str
