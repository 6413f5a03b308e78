"""How often may be asked: a burst at once, a sustained rate after it, for each tenant and for each user.

The rule is pure arithmetic over one number for each (GCRA: the moment at which all that was asked will have been paid
for). It is kept in this process, or in Redis where several control planes are to count as one (`rates_redis`).
"""

from typing import Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Limited
from agentflow.limits import RATES_REMEMBERED_MAX


class Rate(msgspec.Struct, frozen=True):
    burst: int  # at once
    per_s: float  # sustained


class Standing(msgspec.Struct, frozen=True):
    """Where somebody stands after having asked, or having been refused."""

    limit: int
    remaining: int
    reset_s: float  # until all of the burst is there again
    wait_s: float = 0.0  # until it may be asked again; zero: it was let through

    def headers(self) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(self.reset_s) + (self.reset_s % 1 > 0)),
        }


class TooOften(Limited):
    code = "AF1725"

    def __init__(self, standing: Standing) -> None:
        super().__init__(
            f"More than {standing.limit} requests at once, or more than is allowed over time.",
            hint="Wait as long as Retry-After says; X-RateLimit-Remaining tells how many are left.",
            retry_after_s=standing.wait_s,
        )
        self.standing = standing


class Rates(Protocol):
    async def take(self, tenant: str, user: str) -> Standing | None:
        """Count one request. Raises `TooOften`. Where the tenant and the user have limits, the scarcer is told."""
        ...


def asked(paid_at_s: float, now_s: float, rate: Rate) -> tuple[float, Standing]:
    """One request at `now_s`, by somebody whose requests so far are paid for at `paid_at_s`: when they are with it."""
    cost_s = 1 / rate.per_s
    after_s = max(paid_at_s, now_s) + cost_s
    room_s = now_s + rate.burst * cost_s - after_s
    if room_s < -1e-9:
        return paid_at_s, Standing(rate.burst, 0, max(0.0, paid_at_s - now_s), wait_s=-room_s)
    return after_s, Standing(rate.burst, int(room_s / cost_s + 1e-9), after_s - now_s)


def scarcer(one: Standing, other: Standing) -> Standing:
    return one if (one.wait_s, -one.remaining) >= (other.wait_s, -other.remaining) else other


class LocalRates:
    """In this process: exact here, and as many times the limit as there are control planes."""

    def __init__(self, clock: Clock, *, tenant: Rate | None, user: Rate | None) -> None:
        self._clock = clock
        self._tenant = tenant
        self._user = user
        self._paid: dict[str, float] = {}

    async def take(self, tenant: str, user: str) -> Standing | None:
        now_s = self._clock.monotonic_s()
        taken: list[tuple[str, float]] = []
        told: Standing | None = None
        for rate, name in ((self._tenant, tenant), (self._user, f"{tenant}/{user}")):
            if rate is None:
                continue
            paid_s, standing = asked(self._paid.get(name, 0.0), now_s, rate)
            taken.append((name, paid_s))
            told = standing if told is None else scarcer(told, standing)
        if told is not None and told.wait_s > 0:
            raise TooOften(told)
        for name, paid_s in taken:
            self._paid[name] = paid_s
        if len(self._paid) > RATES_REMEMBERED_MAX:
            self._paid = {name: paid_s for name, paid_s in self._paid.items() if paid_s > now_s}
        return told
