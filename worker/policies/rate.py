"""A rate limit (GCRA): so many calls in a span, a few of them at once, the rest spaced out.

Pure: `now_s` is any clock that never steps back. One number of memory, so a million calls cost what one does.
"""

import msgspec


class RateRules(msgspec.Struct, frozen=True):
    calls: int
    per_s: float
    burst: int = 1  # calls that may come at once after a pause


class Rate:
    def __init__(self, rules: RateRules) -> None:
        self._gap_s = rules.per_s / rules.calls
        self._slack_s = self._gap_s * (rules.burst - 1)
        self._free_at_s = float("-inf")  # when the allowance of everything taken so far is used up

    def take(self, now_s: float, *, patience_s: float) -> float | None:
        """How long to wait before the call, or None: the wait would be longer than `patience_s`, nothing is taken."""
        begin_s = max(now_s, self._free_at_s - self._slack_s)
        wait_s = begin_s - now_s
        if wait_s > patience_s:
            return None
        self._free_at_s = max(now_s, self._free_at_s) + self._gap_s
        return wait_s
