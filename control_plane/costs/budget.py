"""What a budget is: how much may be spent, on what, in which period, and what happens then. Pure.

What was spent against it is never stored beside it: it is added up from the cost observations (`book`, `purse`), so the
two cannot differ.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import msgspec

from agentflow.clock import rfc3339
from agentflow.contracts.usage import Usage, dollars_text
from agentflow.errors import Conflict, Invalid, NotFound, OverBudget
from agentflow.ids import TenantId

BudgetScope = Literal["tenant", "workflow", "agent"]
BudgetPeriod = Literal["day", "week", "month", "total"]
OnExceed = Literal["warn", "stop"]
BudgetState = Literal["ok", "warned", "exhausted"]
SCOPES: tuple[BudgetScope, ...] = get_args(BudgetScope)
PERIODS: tuple[BudgetPeriod, ...] = get_args(BudgetPeriod)
STATES: tuple[BudgetState, ...] = get_args(BudgetState)


class Used(msgspec.Struct, frozen=True):
    """`unknown` of the observations have no price: what they cost is not in `microdollars`."""

    microdollars: int = 0
    tokens: int = 0
    unknown: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(
            self.microdollars + other.microdollars, self.tokens + other.tokens, self.unknown + other.unknown
        )  # fmt: skip

    def __sub__(self, other: "Used") -> "Used":
        return Used(
            self.microdollars - other.microdollars, self.tokens - other.tokens, self.unknown - other.unknown
        )  # fmt: skip


NOTHING_USED = Used()


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Without a limit of one kind, that kind is counted and never too much; one of the two there always is."""

    tenant: TenantId
    id: str
    scope: BudgetScope
    name: str  # of the workflow or the agent; none for the whole tenant
    period: BudgetPeriod
    microdollars: int | None
    tokens: int | None
    on_exceed: OnExceed
    warn_at_percent: int
    created_at_ms: int
    revision: int = 1  # counts what people changed
    told: BudgetState = "ok"  # what the audit trail has last heard of it, in the period that began at `told_of_ms`
    told_of_ms: int = 0

    def covers(self, workflows: Collection[str], agents: Collection[str]) -> bool:
        match self.scope:
            case "tenant":
                return True
            case "workflow":
                return self.name in workflows
            case "agent":
                return self.name in agents

    def counts(self, workflow: str, usage: Usage) -> bool:
        """Whether what a step of that workflow used is spent of this budget."""
        return self.covers((workflow,), (usage.agent,))

    def began_ms(self, now_ms: int) -> int:
        """When the period under way began, at midnight UTC; `total` counts from when the budget was made."""
        if self.period == "total":
            return self.created_at_ms
        return _ms(_began(self.period, now_ms))

    def ends_ms(self, now_ms: int) -> int | None:
        """When the next period begins, and everything is there again."""
        match self.period:
            case "day":
                return _ms(_began("day", now_ms) + timedelta(days=1))
            case "week":
                return _ms(_began("week", now_ms) + timedelta(days=7))
            case "month":
                return _ms((_began("month", now_ms) + timedelta(days=32)).replace(day=1))
            case "total":
                return None

    def share(self, used: Used) -> float:
        """How much of it is gone, of whichever limit is nearer; 1 is all."""
        return max(
            (
                1.0 if limit <= 0 else spent / limit
                for limit, spent in ((self.microdollars, used.microdollars), (self.tokens, used.tokens))
                if limit is not None
            ),
            default=0.0,
        )

    def state(self, used: Used) -> BudgetState:
        share = self.share(used)
        if share >= 1:
            return "exhausted"
        return "warned" if share * 100 >= self.warn_at_percent else "ok"

    def stops(self, used: Used) -> bool:
        return self.on_exceed == "stop" and self.share(used) >= 1

    @property
    def label(self) -> str:
        """As people speak of it: `month of workflow support`."""
        return f"{self.period} of {self.scope}" + (f" {self.name}" if self.name else "")


def used_by(usage: Usage) -> Used:
    return Used(usage.microdollars or 0, usage.tokens, int(usage.microdollars is None))


def problems(budget: Budget) -> list[str]:
    """What is wrong with one that somebody wants."""
    wrong = []
    if budget.microdollars is None and budget.tokens is None:
        wrong.append("it limits neither dollars nor tokens")
    if budget.scope == "tenant" and budget.name:
        wrong.append("a budget of the whole tenant has no name")
    if budget.scope != "tenant" and not budget.name:
        wrong.append(f"the name of the {budget.scope} is missing")
    return wrong


class BudgetNotFound(NotFound):
    code = "AF1805"

    def __init__(self, budget: str) -> None:
        super().__init__(f"There is no budget {budget!r}.", hint="List them with `af budgets list`.")


class BudgetThere(Conflict):
    code = "AF1806"

    def __init__(self, there: Budget) -> None:
        super().__init__(
            f"There is a budget for the {there.label} already: {there.id}.",
            hint=f"Change it: `af budgets update {there.id}`; or delete it first.",
        )


class BudgetUsedUp(OverBudget):
    code = "AF1807"

    def __init__(self, budget: Budget, used: Used, now_ms: int) -> None:
        self.budget = budget.id
        ends_ms = budget.ends_ms(now_ms)
        until = "" if ends_ms is None else f", or wait until {rfc3339(ends_ms)}"
        super().__init__(
            f"The budget {budget.id} ({budget.label}) is used up: {_of(budget, used)} are spent.",
            hint=f"Allow more with `af budgets update {budget.id}`{until}; what waits for it goes on by itself.",
        )


class InvalidBudget(Invalid):
    code = "AF1808"

    def __init__(self, wrong: list[str]) -> None:
        super().__init__(
            f"The budget cannot be kept: {'; '.join(wrong)}.",
            hint="Give dollars or tokens (or both), and a name unless the scope is `tenant`.",
        )


class TooManyBudgets(Conflict):
    code = "AF1809"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"Your tenant has {most} budgets, and no more are looked after.",
            hint="Delete those that are not needed: `af budgets list`, `af budgets delete`.",
        )


def _of(budget: Budget, used: Used) -> str:
    parts = []
    if budget.microdollars is not None:
        parts.append(f"{dollars_text(used.microdollars)} of {dollars_text(budget.microdollars)} dollars")
    if budget.tokens is not None:
        parts.append(f"{used.tokens} of {budget.tokens} tokens")
    return " and ".join(parts)


def _began(period: Literal["day", "week", "month"], now_ms: int) -> datetime:
    today = datetime.fromtimestamp(now_ms / 1000, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return today
        case "week":
            return today - timedelta(days=today.weekday())
        case "month":
            return today.replace(day=1)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
