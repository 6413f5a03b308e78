"""What was spent in a period, by whom: what can be asked, and the port that answers. Days begin at midnight UTC."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, get_args

import msgspec

from agentflow.ids import TenantId

Scope = Literal["tenant", "workflow", "agent", "resource"]
Period = Literal["today", "yesterday", "last_7_days", "last_30_days", "this_month", "last_month", "all"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PERIODS: tuple[Period, ...] = get_args(Period)


class Span(msgspec.Struct, frozen=True):
    """From a moment on, and before another; None is without an end."""

    from_ms: int | None
    until_ms: int | None


class Spent(msgspec.Struct, frozen=True):
    """Added up. `unknown` of the `observations` have no price: what they cost is not in `microdollars`."""

    name: str
    observations: int
    unknown: int
    microdollars: int
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    audio: int = 0


class Costs(Protocol):
    async def by(self, tenant: TenantId, scope: Scope, span: Span, *, limit: int) -> Sequence[Spent]:
        """The dearest first. With scope `tenant`: one line, or none where nothing was spent."""
        ...


def span_of(period: Period, now_ms: int) -> Span:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    match period:
        case "today":
            return Span(_ms(today), None)
        case "yesterday":
            return Span(_ms(today - timedelta(days=1)), _ms(today))
        case "last_7_days":
            return Span(_ms(today - timedelta(days=6)), None)
        case "last_30_days":
            return Span(_ms(today - timedelta(days=29)), None)
        case "this_month":
            return Span(_ms(month), None)
        case "last_month":
            return Span(_ms((month - timedelta(days=1)).replace(day=1)), _ms(month))
        case "all":
            return Span(None, None)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
