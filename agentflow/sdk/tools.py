"""Tools: registering, listing and trying them out. Part of the client."""

from typing import Any

import msgspec

from agentflow.sdk.models import PushedTool, TestedTool, Tool, ToolList
from agentflow.sdk.requests import ANSWER_S, Requests, asked, segment

_CREATED = 201
_TEST_S = 120.0  # a tool that is tried out may take this long


class ToolRequests(Requests):
    async def push_tool(self, text: str | bytes, content_type: str = "application/yaml") -> PushedTool:
        response = await self._send("POST", "/tools", content=text, headers={"Content-Type": content_type})
        pushed = self._read(response, PushedTool)
        return msgspec.structs.replace(pushed, created=response.status == _CREATED)

    async def tools(self, *, name: str | None = None, cursor: str | None = None, limit: int = 200) -> ToolList:
        return await self._get("/tools", ToolList, asked(limit=limit, cursor=cursor, name=name))

    async def tool(self, ref: str) -> Tool:
        """By name (its newest version), `name@1` or `name@1.2.0`."""
        return await self._get(f"/tools/{segment(ref)}", Tool)

    async def test_tool(self, ref: str, input: Any, *, network: bool = False) -> TestedTool:
        """One call on some worker, outside of any execution."""
        body = {"input": input, "network": network}
        path = f"/tools/{segment(ref)}/test"
        return await self._ask("POST", path, TestedTool, body, within_s=ANSWER_S + _TEST_S)
