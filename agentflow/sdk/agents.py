"""Agents: which there are, and who answers for one. Part of the client."""

from collections.abc import AsyncIterator
from typing import Any

from agentflow.sdk.models import Agent, AgentDetail, AgentList
from agentflow.sdk.requests import Requests, asked, pages, segment


class AgentRequests(Requests):
    async def agents(
        self, *, name: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> AgentList:
        """One page of those that some worker answers for now, by name."""
        return await self._get("/agents", AgentList, asked(limit=limit, cursor=cursor, name=name))

    async def iter_agents(self, **filters: Any) -> AsyncIterator[Agent]:
        """Every one that fits the filters of `agents`, page by page as they are asked for."""
        async for page in pages(lambda cursor: self.agents(cursor=cursor, **filters)):
            for item in page.items:
                yield item

    async def agent(self, name: str) -> AgentDetail:
        """How busy it is, with each worker that answers for it."""
        return await self._get(f"/agents/{segment(name)}", AgentDetail)
