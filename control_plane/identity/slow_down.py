"""Guessing gets slower: after a few failures in a row the next attempt must wait, twice as long each time.

Counted for the account that is tried and for the address it comes from, whether or not the account exists. In this
process only and bounded: it slows guessing down, and the hash of the password is what makes it hopeless.
"""

from collections.abc import Iterable

from agentflow.clock import Clock
from agentflow.errors import Limited
from agentflow.limits import (
    LOGIN_FAILURES_FREE,
    LOGIN_FAILURES_FREE_ADDRESS,
    LOGIN_FAILURES_REMEMBERED_MAX,
    LOGIN_WAIT_S_MAX,
)

ADDRESS = "address "  # what an address is counted under begins with this: many people may share one


class TooManyFailures(Limited):
    code = "AF1709"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            "Too many attempts to log in have failed here.",
            hint="Wait as long as Retry-After says, and check the credential meanwhile.",
            retry_after_s=retry_after_s,
        )


class SlowDown:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row, and when the next may be tried

    def check(self, whom: Iterable[str]) -> None:
        now_s = self._clock.monotonic_s()
        wait_s = max((self._failures[one][1] - now_s for one in whom if one in self._failures), default=0.0)
        if wait_s > 0:
            raise TooManyFailures(wait_s)

    def failed(self, whom: Iterable[str]) -> None:
        for one in whom:
            count = self._failures.pop(one, (0, 0.0))[0] + 1
            beyond = count - (LOGIN_FAILURES_FREE_ADDRESS if one.startswith(ADDRESS) else LOGIN_FAILURES_FREE)
            wait_s = min(2.0**beyond, LOGIN_WAIT_S_MAX) if beyond >= 0 else 0.0
            while len(self._failures) >= LOGIN_FAILURES_REMEMBERED_MAX:
                del self._failures[next(iter(self._failures))]  # the one untouched for longest
            self._failures[one] = (count, self._clock.monotonic_s() + wait_s)

    def succeeded(self, whom: Iterable[str]) -> None:
        for one in whom:
            self._failures.pop(one, None)
