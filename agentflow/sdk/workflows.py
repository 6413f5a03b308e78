"""Workflows: registering versions, listing them, executing them. Part of the client."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from agentflow.sdk.models import PushedWorkflow, StartedExecution, Workflow, WorkflowList, WorkflowSummary
from agentflow.sdk.requests import ANSWER_S, Requests, asked, given, pages, segment

_CREATED = 201


class WorkflowRequests(Requests):
    async def push_workflow(self, text: str | bytes, content_type: str = "application/yaml") -> PushedWorkflow:
        response = await self._send("POST", "/workflows", content=text, headers={"Content-Type": content_type})
        pushed = self._read(response, PushedWorkflow)
        return msgspec.structs.replace(pushed, created=response.status == _CREATED)

    async def workflows(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> WorkflowList:
        """One page, newest first."""
        return await self._get("/workflows", WorkflowList, asked(limit=limit, cursor=cursor, name=name, tag=tag))

    async def iter_workflows(self, **filters: Any) -> AsyncIterator[WorkflowSummary]:
        """Every version that fits the filters of `workflows`, page by page as they are asked for."""
        async for page in pages(lambda cursor: self.workflows(cursor=cursor, **filters)):
            for item in page.items:
                yield item

    async def workflow(self, ref: str) -> Workflow:
        """By id, by name (its newest version) or by `name@version`."""
        return await self._get(f"/workflows/{segment(ref)}", Workflow)

    async def execute(
        self,
        ref: str,
        input: Any,
        *,
        wait: bool = False,
        wait_s: float = 60,
        key: str | None = None,
        priority: int = 0,
        delay: str | None = None,
        start_at: str | None = None,
    ) -> StartedExecution:
        """With a `key` of your own, sending the same again after a lost answer gives the same execution.

        It begins no earlier than `start_at` (RFC 3339), or than after `delay` (`10m`); of those that wait for room,
        the higher `priority` goes first.
        """
        how = given(priority=priority or None, delay=delay, start_at=start_at)
        body = {"input": input, "wait": wait, "wait_s": wait_s, **how}
        within_s = ANSWER_S + (wait_s if wait else 0)
        return await self._ask(
            "POST", f"/workflows/{segment(ref)}/execute", StartedExecution, body, key=key, within_s=within_s
        )
