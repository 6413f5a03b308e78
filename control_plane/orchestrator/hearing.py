"""Whether silence means anything: while the bus is away, and for a while after, a result may exist and not be here yet.

Asked for every stamp; looks at the connection whenever it is asked, and is asked at least once a sweep.
"""

from collections.abc import Callable

from agentflow import limits
from agentflow.clock import Clock


class Hearing:
    def __init__(self, connected: Callable[[], bool], clock: Clock) -> None:
        self._connected = connected
        self._clock = clock
        self._deaf_until_s = 0.0

    def __call__(self) -> bool:
        now_s = self._clock.monotonic_s()
        if not self._connected():
            self._deaf_until_s = now_s + limits.BUS_BACK_S
        return now_s >= self._deaf_until_s
