"""What was spent, added up from the observations that appends write; implements `control_plane.costs.report.Costs`."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, literal, select

from agentflow.contracts.usage import TOKEN_KINDS
from agentflow.ids import TenantId
from control_plane.costs.report import Scope, Span, Spent
from control_plane.storage.database import Database
from control_plane.storage.tables import cost_observations

_spent = cost_observations.c


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


def _within(tenant: TenantId, span: Span) -> ColumnElement[bool]:
    within: list[ColumnElement[bool]] = [_spent.tenant_id == tenant]
    if span.from_ms is not None:
        within.append(_spent.at_ms >= span.from_ms)
    if span.until_ms is not None:
        within.append(_spent.at_ms < span.until_ms)
    return and_(*within)
