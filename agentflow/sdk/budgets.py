"""How much may be spent on what: `client.budgets`."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from agentflow.limits import LIST_PAGE_MAX
from agentflow.sdk.requests import Ask, new_key, segment

_KEEP: Any = msgspec.UNSET


class Amount(msgspec.Struct, frozen=True):
    dollars: str | None  # exact
    tokens: int | None


class Budget(msgspec.Struct, frozen=True):
    id: str
    scope: str  # tenant, workflow or agent
    name: str | None
    period: str  # day, week, month or total
    limit: Amount
    spent: Amount  # in the period under way
    remaining: Amount
    cost_unknown: int  # observations that have no known price: they are not in `spent.dollars`
    state: str  # ok, warned or exhausted
    on_exceed: str  # warn or stop
    warn_at: float
    period_began_at: str
    created_at: str
    period_ends_at: str | None = None


class BudgetList(msgspec.Struct, frozen=True):
    items: list[Budget]
    next_cursor: str | None = None
    total_count: int | None = None


class BudgetOperations:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def create(
        self,
        scope: str = "tenant",
        name: str = "",
        *,
        period: str = "month",
        dollars: str | None = None,
        tokens: int | None = None,
        on_exceed: str = "stop",
        warn_at: float = 0.8,
        key: str | None = None,
    ) -> Budget:
        """`await client.budgets.create("workflow", "support", period="day", dollars="5.00")`"""
        body = {
            "scope": scope, "name": name, "period": period, "dollars": dollars, "tokens": tokens,
            "on_exceed": on_exceed, "warn_at": warn_at,
        }  # fmt: skip
        return await self._ask("POST", "/budgets", Budget, body, key=key or new_key())

    async def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: str | None) -> BudgetList:
        """The oldest first. Filters: scope, name, period, state."""
        asked = {"limit": limit, "cursor": cursor} | {f"filter[{field}]": value for field, value in filters.items()}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        return await self._ask("GET", f"/budgets?{given}" if given else "/budgets", BudgetList)

    async def iterate(self, **filters: str | None) -> AsyncIterator[Budget]:
        """Every one that fits, page by page as they are asked for."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=LIST_PAGE_MAX, cursor=cursor, **filters)
            for budget in page.items:
                yield budget
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get(self, budget: str) -> Budget:
        return await self._ask("GET", _path(budget), Budget)

    async def update(
        self,
        budget: str,
        *,
        dollars: str | None = _KEEP,
        tokens: int | None = _KEEP,
        on_exceed: str = _KEEP,
        warn_at: float = _KEEP,
    ) -> Budget:
        """What is left out stays; a limit that is None is none from now on. What waits for it goes on by itself."""
        body = {"dollars": dollars, "tokens": tokens, "on_exceed": on_exceed, "warn_at": warn_at}
        given = {name: value for name, value in body.items() if value is not _KEEP}
        return await self._ask("PATCH", _path(budget), Budget, given)

    async def delete(self, budget: str) -> None:
        await self._ask("DELETE", _path(budget), type(None))


def _path(budget: str) -> str:
    return f"/budgets/{segment(budget)}"
