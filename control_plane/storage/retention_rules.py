"""How long each kind of stored thing is kept: defaults, and what a deployment chose instead, for all or for one tenant.

Pure. The kinds are `tables.types.Retention`; `retention` acts on what is decided here. What is not in `DAYS_DEFAULT` is
kept until its owner removes it.
"""

import re
from collections.abc import Mapping

import msgspec

from agentflow.errors import Invalid
from control_plane.storage.tables.types import Retention

# Seed values: audit logs 30 days, memory records 180. Messages (7 days) and agents' mailboxes (3) are JetStream's own.
DAYS_DEFAULT: Mapping[Retention, int] = {
    Retention.HISTORY: 30,
    Retention.AUDIT: 30,
    Retention.COST: 400,  # a year of bills, and time to argue about the last one
    Retention.SNAPSHOT: 180,
    Retention.JOB: 30,
    Retention.AGENT_STATE: 180,
}
_DAY_MS = 24 * 3600 * 1000
_RULE = re.compile(
    r"(?:(?P<tenant>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})/)?(?P<kind>[a-z_]+)=(?:(?P<days>\d{1,5})d|(?P<never>never))"
)


class InvalidRetention(Invalid):
    code = "AF1620"

    def __init__(self, reason: str) -> None:
        kinds = ", ".join(DAYS_DEFAULT)
        super().__init__(
            f"AF_RETENTION cannot be used: {reason}.",
            hint=f"Write rules such as history=30d, acme/history=7d or cost=never, with commas; the kinds are {kinds}.",
        )


class Rules(msgspec.Struct, frozen=True):
    """`None` is for ever."""

    chosen: dict[tuple[str, Retention], int | None] = {}
    counted_from_ms: dict[str, int] = {}  # by tenant: what a budget still counts was spent since then, and stays

    def days(self, tenant: str, kind: Retention) -> int | None:
        for key in ((tenant, kind), ("", kind)):
            if key in self.chosen:
                return self.chosen[key]
        return DAYS_DEFAULT.get(kind)

    def cutoff_ms(self, tenant: str, kind: Retention, now_ms: int) -> int | None:
        """Whatever is older than this goes; None where nothing does."""
        days = self.days(tenant, kind)
        if days is None:
            return None
        cutoff_ms = now_ms - days * _DAY_MS
        return min(cutoff_ms, self.counted_from_ms.get(tenant, cutoff_ms)) if kind is Retention.COST else cutoff_ms

    def tenants(self, kind: Retention) -> set[str]:
        """Those for whom something else may hold than for all; "" among them where that was chosen."""
        chosen = {tenant for tenant, of in self.chosen if of is kind}
        return chosen | set(self.counted_from_ms) if kind is Retention.COST else chosen


def parse_rules(text: str) -> Rules:
    chosen: dict[tuple[str, Retention], int | None] = {}
    for written in filter(None, (part.strip() for part in text.split(","))):
        rule = _RULE.fullmatch(written)
        if rule is None:
            raise InvalidRetention(f"{written!r} is not a rule")
        if rule["kind"] not in set(DAYS_DEFAULT):
            raise InvalidRetention(f"{rule['kind']!r} is not a kind that ends by age")
        chosen[rule["tenant"] or "", Retention(rule["kind"])] = None if rule["never"] else int(rule["days"])
    return Rules(chosen)
