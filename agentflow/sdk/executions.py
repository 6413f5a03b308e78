"""Executions: listing them, and looking into one. Part of the client; what is asked *of* one is in `orders`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from agentflow.sdk.models import (
    EvaluationList,
    Execution,
    ExecutionList,
    ExecutionSummary,
    Step,
    StepList,
    TaskList,
    Tick,
    TickList,
)
from agentflow.sdk.requests import Requests, asked, given, pages, segment

_AT_ONCE = 200  # executions asked beside each other


class ExecutionRequests(Requests):
    async def executions(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        tag: str | None = None,
        started_after: str | None = None,
        started_before: str | None = None,
        input: dict[str, str] | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> ExecutionList:
        """One page, newest first. `status` may be several with commas; `input` looks into it, by paths with dots."""
        attributes = {f"input.{path}": value for path, value in (input or {}).items()}
        parameters = asked(
            limit=limit,
            cursor=cursor,
            workflow=workflow,
            status=status,
            tag=tag,
            started_after=started_after,
            started_before=started_before,
            **attributes,
        )
        return await self._get("/executions", ExecutionList, parameters)

    async def iter_executions(self, **filters: Any) -> AsyncIterator[ExecutionSummary]:
        """Every execution that fits the filters of `executions`, page by page as they are asked for."""
        async for page in pages(lambda cursor: self.executions(cursor=cursor, **filters)):
            for item in page.items:
                yield item

    async def execution(self, execution: str) -> Execution:
        return await self._get(f"/executions/{segment(execution)}", Execution)

    async def failed_at(
        self, step: str, *, workflow: str | None = None, since: str | None = None
    ) -> AsyncIterator[Execution]:
        """Every failed execution that could not go on from a step, by its path; started `since` (RFC 3339)."""

        def failed(cursor: str | None) -> Awaitable[ExecutionList]:
            return self.executions(
                workflow=workflow, status="failed", started_after=since, cursor=cursor, limit=_AT_ONCE
            )

        async for page in pages(failed):
            for found in await asyncio.gather(*(self.execution(item.id) for item in page.items)):
                if found.failed_at == step:
                    yield found

    async def steps(self, execution: str, *, after: int = 0) -> list[Step]:
        """The steps of an execution and how far each has come, in the order in which they were first asked for."""
        return (await self._get(f"/executions/{segment(execution)}/steps", StepList, given(after=after))).items

    async def ticks(self, execution: str, *, after: int = 0, limit: int | None = None) -> TickList:
        """What each tick of a behaviour tree changed."""
        return await self._get(f"/executions/{segment(execution)}/ticks", TickList, given(after=after, limit=limit))

    async def tick(self, execution: str, version: int) -> Tick:
        """How a behaviour tree stood at a version of its execution."""
        return await self._get(f"/executions/{segment(execution)}/ticks/{version}", Tick)

    async def evaluations(self, execution: str, *, after: int = 0, limit: int | None = None) -> EvaluationList:
        """Every expression that an execution evaluated, with the values it read."""
        parameters = given(after=after, limit=limit)
        return await self._get(f"/executions/{segment(execution)}/evaluations", EvaluationList, parameters)

    async def tasks(self, *, limit: int | None = None) -> TaskList:
        """What waits for people, over all executions: whoever waits longest comes first."""
        return await self._get("/tasks", TaskList, given(limit=limit))
