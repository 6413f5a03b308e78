"""What was spent, added up from the observations that appends write, and those of single executions.

Implements `control_plane.costs.report.Costs` and `control_plane.estimating.Observations`.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, and_, cast, func, literal, select

from agentflow.contracts.usage import TOKEN_KINDS
from agentflow.ids import ExecutionId, TenantId
from control_plane.costs.report import Scope, Span, Spent
from control_plane.estimating import Observed
from control_plane.storage.database import Database
from control_plane.storage.tables import cost_observations

_spent = cost_observations.c
TOKENS: ColumnElement[int] = sum(  # of all kinds: they do not overlap
    (_spent[f"tokens_{kind}"] for kind in TOKEN_KINDS[1:]), _spent[f"tokens_{TOKEN_KINDS[0]}"]
)
_OBSERVED = select(
    _spent.execution_id,
    _spent.path,
    _spent.agent,
    _spent.resource,
    _spent.microdollars,
    TOKENS,
)


class SqlCosts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def by(self, tenant: TenantId, scope: Scope, span: Span, *, limit: int) -> Sequence[Spent]:
        name = literal(tenant) if scope == "tenant" else _spent[scope]
        dollars = func.coalesce(cast(func.sum(_spent.microdollars), BigInteger), 0).label("microdollars")
        counted = func.count().label("observations")
        query = (
            select(
                name.label("name"),
                counted,
                (counted - func.count(_spent.microdollars)).label("unknown"),
                dollars,
                *(cast(func.sum(_spent[f"tokens_{kind}"]), BigInteger).label(kind) for kind in TOKEN_KINDS),
            )
            .where(_within(tenant, span))
            .group_by(name)
            .order_by(dollars.desc(), counted.desc(), name)
            .limit(limit)
        )
        async with self._database.read(tenant) as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Spent(**row) for row in rows]

    async def of(self, tenant: TenantId, executions: Sequence[ExecutionId], *, limit: int) -> Sequence[Observed]:
        mine = and_(_spent.tenant_id == tenant, _spent.execution_id.in_(executions))
        return await self._observed(tenant, _OBSERVED.where(mine).limit(limit))

    async def newest(self, tenant: TenantId, *, limit: int) -> Sequence[Observed]:
        mine = _OBSERVED.where(_spent.tenant_id == tenant)
        return await self._observed(tenant, mine.order_by(_spent.at_ms.desc()).limit(limit))

    async def _observed(self, tenant: TenantId, query: Select[Any]) -> Sequence[Observed]:
        async with self._database.read(tenant) as connection:
            return [Observed(*row) for row in await connection.execute(query)]


def _within(tenant: TenantId, span: Span) -> ColumnElement[bool]:
    within: list[ColumnElement[bool]] = [_spent.tenant_id == tenant]
    if span.from_ms is not None:
        within.append(_spent.at_ms >= span.from_ms)
    if span.until_ms is not None:
        within.append(_spent.at_ms < span.until_ms)
    return and_(*within)
