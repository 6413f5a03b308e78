"""A circuit breaker: after enough trouble in a row of moments, refuse at once instead of waiting for more of it.

Pure: `now_s` is any clock that never steps back. Used by `guard`, one for each agent or tool.
"""

from collections import deque
from enum import StrEnum

import msgspec

_SEEN_MAX = 1_000  # more failures than this in a window say nothing new


class CircuitRules(msgspec.Struct, frozen=True):
    failures: int = 5  # this many within the window open it
    window_s: float = 30.0
    open_s: float = 10.0  # how long nothing is tried
    probes: int = 1  # then this many may try at once, and as many successes close it


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Circuit:
    """Ask `admit` before a call; hand what it gave to `succeeded`, `failed` or `abandoned` after it."""

    def __init__(self, rules: CircuitRules) -> None:
        self._rules = rules
        self._failures: deque[float] = deque(maxlen=min(rules.failures, _SEEN_MAX))
        self._opened_at_s: float | None = None
        self._probing = 0
        self._proved = 0
        # A call that began before the circuit last changed has nothing to say about what came after.
        self._era = 0

    def state(self, now_s: float) -> CircuitState:
        if self._opened_at_s is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now_s < self._opened_at_s + self._rules.open_s else CircuitState.HALF_OPEN

    def closed_in_s(self, now_s: float) -> float:
        """How long until a call may be tried again; nothing while calls are let through."""
        return 0.0 if self._opened_at_s is None else max(0.0, self._opened_at_s + self._rules.open_s - now_s)

    def admit(self, now_s: float) -> int | None:
        """The era the call belongs to, or None: do not call."""
        match self.state(now_s):
            case CircuitState.OPEN:
                return None
            case CircuitState.HALF_OPEN:
                if self._probing + self._proved >= self._rules.probes:
                    return None
                self._probing += 1
        return self._era

    def succeeded(self, era: int) -> None:
        if era != self._era or self._opened_at_s is None:
            return
        self._probing -= 1
        self._proved += 1
        if self._proved >= self._rules.probes:
            self._begin_era(None)

    def failed(self, era: int, now_s: float) -> None:
        if era != self._era:
            return
        if self._opened_at_s is not None:  # a probe: still no good
            self._begin_era(now_s)
            return
        self._failures.append(now_s)
        enough = len(self._failures) == self._failures.maxlen
        if enough and now_s - self._failures[0] <= self._rules.window_s:
            self._begin_era(now_s)

    def abandoned(self, era: int) -> None:
        """The call neither worked nor failed: its caller went away."""
        if era == self._era and self._opened_at_s is not None:
            self._probing -= 1

    def _begin_era(self, opened_at_s: float | None) -> None:
        self._era += 1
        self._opened_at_s = opened_at_s
        self._failures.clear()
        self._probing = self._proved = 0
