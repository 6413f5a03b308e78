"""Who did what, as the tenant's chain has it: `client.audit`."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from agentflow.contracts.audit import Checkpoint, Link
from agentflow.limits import LIST_PAGE_MAX
from agentflow.sdk.requests import Ask


class LinkList(msgspec.Struct, frozen=True):
    items: list[Link]
    next_cursor: str | None = None
    total_count: int | None = None


class AuditOperations:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def list(
        self,
        filters: Mapping[str, str | None] | None = None,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        oldest_first: bool = False,
    ) -> LinkList:
        """One page, the newest first. Filters: actor, action, resource_type, resource, outcome, since, until."""
        asked: dict[str, Any] = {"limit": limit, "cursor": cursor, "sort": "seq" if oldest_first else None}
        asked |= {f"filter[{field}]": value for field, value in (filters or {}).items()}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        return await self._ask("GET", f"/audit?{given}" if given else "/audit", LinkList)

    async def iterate(self, filters: Mapping[str, str | None] | None = None) -> AsyncIterator[Link]:
        """Every record that fits, the oldest first, page by page as they are asked for."""
        cursor: str | None = None
        while True:
            page = await self.list(filters, limit=LIST_PAGE_MAX, cursor=cursor, oldest_first=True)
            for link in page.items:
                yield link
            cursor = page.next_cursor
            if cursor is None:
                return

    async def checkpoint(self) -> Checkpoint:
        """Where the chain ends now, signed. Kept elsewhere, it shows later whether the end was cut off."""
        return await self._ask("GET", "/audit/checkpoint", Checkpoint)
