"""/api/v1/budgets: how much may be spent on what, and how much of it is gone."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Response
from pydantic import Field

from agentflow.clock import rfc3339
from agentflow.contracts.usage import dollars_text, microdollars
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.errors import ResourceChanged
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, keyed, one_of
from control_plane.api.people import Body
from control_plane.api.request import Behind, IdempotencyKey, IfMatch, Tenant
from control_plane.costs.book import Standing
from control_plane.costs.budget import PERIODS, SCOPES, STATES, Budget, BudgetPeriod, BudgetScope, BudgetState, OnExceed
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/budgets", tags=["budgets"])

_Dollars = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$", description="Exact, such as `25.00`.")]
_Tokens = Annotated[int, Field(ge=0, le=2**53 - 1, description="Of all kinds together.")]
_WarnAt = Annotated[float, Field(ge=0.01, le=1, description="The share of a limit from which on it is `warned`.")]
_Name = Annotated[str, Field(max_length=256)]


class NewBudget(Body):
    scope: BudgetScope
    name: _Name = Field(default="", description="Of the workflow or the agent; none for the whole tenant.")
    period: BudgetPeriod = Field(
        default="month", description="Days, weeks and months begin at midnight UTC; `total` is from now on."
    )
    dollars: _Dollars | None = None
    tokens: _Tokens | None = None
    on_exceed: OnExceed = Field(
        default="stop", description="`stop`: nothing is begun any more that it covers. `warn`: it is only told."
    )
    warn_at: _WarnAt = 0.8


class ChangedBudget(Body):
    """What is left out stays; a limit that is null is none from now on."""

    dollars: _Dollars | None = None
    tokens: _Tokens | None = None
    on_exceed: OnExceed | None = None
    warn_at: _WarnAt | None = None


class Amount(schemas.Shape):
    """Of a limit that there is not, nothing remains to be told."""

    dollars: str | None
    tokens: int | None


class BudgetAnswer(schemas.Shape):
    id: str
    scope: BudgetScope
    name: str | None
    period: BudgetPeriod
    limit: Amount
    spent: Amount = Field(description="In the period under way, added up from the observations.")
    remaining: Amount
    cost_unknown: int = Field(description="Observations whose price nobody knows. They are not in `spent.dollars`.")
    state: BudgetState
    on_exceed: OnExceed
    warn_at: float
    period_began_at: str
    period_ends_at: str | None = Field(description="When everything is there again; null: never.")
    created_at: str


class BudgetList(schemas.Shape):
    items: list[BudgetAnswer]
    next_cursor: str | None
    total_count: int


_EXAMPLE = {
    "id": "bud_01JD3ZJ4W3E5V8Q2N7M0K1T9XA",
    "scope": "workflow",
    "name": "support",
    "period": "month",
    "limit": {"dollars": "25.000000", "tokens": None},
    "spent": {"dollars": "21.420000", "tokens": 1_208_311},
    "remaining": {"dollars": "3.580000", "tokens": None},
    "cost_unknown": 0,
    "state": "warned",
    "on_exceed": "stop",
    "warn_at": 0.8,
    "period_began_at": "2026-11-01T00:00:00.000Z",
    "period_ends_at": "2026-12-01T00:00:00.000Z",
    "created_at": "2026-10-03T09:12:44.120Z",
}

_LISTED = Listing(
    filters={
        "scope": one_of(*SCOPES),
        "name": Filter("Of the workflow or the agent."),
        "period": one_of(*PERIODS),
        "state": one_of(*STATES),
    },
    sorts=("created_at",),
    default_sort="created_at",
)


@router.post(
    "",
    status_code=201,
    responses=documented(409, 413, 422, ok={201: BudgetAnswer}, example=_EXAMPLE),
)
@needs(Permission.BUDGETS_WRITE)
async def create(body: NewBudget, behind: Behind, tenant: Tenant, key: IdempotencyKey = None) -> Response:
    """One for each scope and period. What was spent in the period before it was made counts, except for `total`."""
    made = await behind.create_budget(tenant, _wanted(body), key)
    return _answer(made, 201, {"Location": f"/api/v1/budgets/{made.budget.id}"})


@router.get("", responses=documented(422, ok=BudgetList), openapi_extra=_LISTED.openapi())
@needs(Permission.BUDGETS_READ)
async def list_budgets(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    wanted = page.filters
    found = [
        standing
        for standing in await behind.budgets.list(tenant)
        if all(getattr(standing.budget, field) in wanted[field] for field in ("scope", "period") if field in wanted)
        and wanted.get("name", standing.budget.name) == standing.budget.name
        and standing.state in wanted.get("state", STATES)
    ]
    shown, last = keyed(page, found, lambda standing: (standing.budget.created_at_ms, standing.budget.id))
    return answer(page.answer([_view(standing) for standing in shown], last, total=len(found)))


@router.get("/{budget}", responses=documented(404, ok=BudgetAnswer, example=_EXAMPLE))
@needs(Permission.BUDGETS_READ)
async def show(budget: str, behind: Behind, tenant: Tenant) -> Response:
    """With what is spent of it to the last commit."""
    return _answer(await behind.budgets.find(tenant, budget))


@router.patch("/{budget}", responses=documented(404, 412, 413, 422, ok=BudgetAnswer, example=_EXAMPLE))
@needs(Permission.BUDGETS_WRITE)
async def change(
    budget: str, body: ChangedBudget, behind: Behind, tenant: Tenant, if_match: IfMatch = None
) -> Response:
    """Allow more, or less. What waits for it goes on by itself.

    `If-Match` is about what people have set: that something was spent since is no reason to refuse.
    """
    seen = _revision_seen(if_match, budget)
    return _answer(await behind.budgets.change(tenant, budget, _changes(body), only_at=seen))


@router.delete("/{budget}", status_code=204, responses=documented(404, ok={}))
@needs(Permission.BUDGETS_WRITE)
async def delete(budget: str, behind: Behind, tenant: Tenant) -> None:
    """What it has stopped goes on."""
    await behind.budgets.remove(tenant, budget)


def _wanted(body: NewBudget) -> dict[str, Any]:
    return {
        "scope": body.scope,
        "name": body.name,
        "period": body.period,
        "microdollars": None if body.dollars is None else microdollars(body.dollars),
        "tokens": body.tokens,
        "on_exceed": body.on_exceed,
        "warn_at_percent": round(body.warn_at * 100),
    }


def _changes(body: ChangedBudget) -> Callable[[Budget], Budget]:
    changed: dict[str, Any] = {}
    if "dollars" in body.model_fields_set:
        changed["microdollars"] = None if body.dollars is None else microdollars(body.dollars)
    if "tokens" in body.model_fields_set:
        changed["tokens"] = body.tokens
    if body.on_exceed is not None:
        changed["on_exceed"] = body.on_exceed
    if body.warn_at is not None:
        changed["warn_at_percent"] = round(body.warn_at * 100)
    return lambda before: msgspec.structs.replace(before, **changed)


def _revision_seen(if_match: str | None, budget: str) -> int | None:
    """What people have set, in the ETag of a budget; what is no such ETag cannot be of any."""
    if if_match is None or if_match.strip() == "*":
        return None
    number = if_match.strip().strip('"').partition("-")[0]
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise ResourceChanged(f"Budget {budget}")
    return int(number)


def _answer(standing: Standing, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    used = standing.used
    tag = f'"{standing.budget.revision}-{used.microdollars}-{used.tokens}-{used.unknown}-{_period_began_ms(standing)}"'
    return answer(_view(standing), status, {"ETag": tag, **(headers or {})})


def _period_began_ms(standing: Standing) -> int:
    return standing.budget.began_ms(standing.now_ms)


def _view(standing: Standing) -> dict[str, Any]:
    budget, used = standing.budget, standing.used
    ends_ms = budget.ends_ms(standing.now_ms)
    return {
        "id": budget.id,
        "scope": budget.scope,
        "name": budget.name or None,
        "period": budget.period,
        "limit": _amount(budget.microdollars, budget.tokens),
        "spent": _amount(used.microdollars, used.tokens),
        "remaining": _amount(
            None if budget.microdollars is None else max(0, budget.microdollars - used.microdollars),
            None if budget.tokens is None else max(0, budget.tokens - used.tokens),
        ),
        "cost_unknown": used.unknown,
        "state": standing.state,
        "on_exceed": budget.on_exceed,
        "warn_at": budget.warn_at_percent / 100,
        "period_began_at": rfc3339(_period_began_ms(standing)),
        "period_ends_at": None if ends_ms is None else rfc3339(ends_ms),
        "created_at": rfc3339(budget.created_at_ms),
    }


def _amount(micro: int | None, tokens: int | None) -> dict[str, Any]:
    return {"dollars": None if micro is None else dollars_text(micro), "tokens": tokens}
