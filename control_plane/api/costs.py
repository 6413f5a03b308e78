"""/api/v1/costs: what was spent, by tenant, workflow, agent or resource."""

from typing import Any

from fastapi import Response
from pydantic import Field

from agentflow.clock import rfc3339
from agentflow.contracts.usage import TOKEN_KINDS, dollars_text
from agentflow.limits import LIST_PAGE_MAX
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.costs.report import Period, Scope, Spent, span_of
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/costs", tags=["costs"])

_EXAMPLE = {
    "scope": "workflow",
    "period": "today",
    "from": "2026-11-18T00:00:00.000Z",
    "until": "2026-11-19T00:00:00.000Z",
    "items": [
        {
            "name": "support",
            "dollars": "0.042000",
            "cost_unknown": 0,
            "observations": 21,
            "tokens": {"input": 900, "cache_read": 0, "cache_write": 0, "output": 310, "reasoning": 0, "audio": 0},
        }
    ],
}


class Tokens(schemas.Shape):
    """Kinds that do not overlap."""

    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int
    audio: int


class CostLine(schemas.Shape):
    name: str
    dollars: str = Field(description="Exact to a millionth; without what `cost_unknown` of the observations cost.")
    cost_unknown: int = Field(description="Observations whose price nobody knows. They are not in `dollars`.")
    observations: int
    tokens: Tokens


class CostReport(schemas.Shape):
    scope: Scope
    period: Period
    from_: str | None = Field(alias="from")
    until: str | None
    items: list[CostLine]


@router.get("", responses=documented(422, ok=CostReport, example=_EXAMPLE))
@needs(Permission.COSTS_READ)
async def costs(behind: Behind, tenant: Tenant, scope: Scope = "tenant", period: Period = "today") -> Response:
    """The dearest first. Days and months begin at midnight UTC."""
    span = span_of(period, behind.now_ms())
    found = await behind.costs.by(tenant, scope, span, limit=LIST_PAGE_MAX)
    told = {
        "scope": scope,
        "period": period,
        "from": None if span.from_ms is None else rfc3339(span.from_ms),
        "until": None if span.until_ms is None else rfc3339(span.until_ms),
        "items": [_line(spent) for spent in found],
    }
    return answer(told)


def _line(spent: Spent) -> dict[str, Any]:
    return {
        "name": spent.name,
        "dollars": dollars_text(spent.microdollars),
        "cost_unknown": spent.unknown,
        "observations": spent.observations,
        "tokens": {kind: getattr(spent, kind) for kind in TOKEN_KINDS},
    }
