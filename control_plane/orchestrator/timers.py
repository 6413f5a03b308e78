"""Wakes executions when their next moment comes: a time-out, a retry, a deadline.

Holds no truth. `state.next_wakeup` implies every timer, so after a crash recovery sets them again, and a
timer that fires early or twice only asks `decide` a question whose answer is "nothing".
"""

import asyncio
import heapq
from collections.abc import Callable

from agentflow.clock import Clock
from agentflow.ids import ExecutionId

_LONGEST_NAP_S = 5.0  # wall clocks jump; no timer is later than this because of it
_STALE_MAX = 1_000
_SOON_MS = 1_000


class Timers:
    """At most one entry an execution: an earlier one that turns out stale sets the right one when it fires."""

    def __init__(self, clock: Clock, fire: Callable[[ExecutionId], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._armed: dict[ExecutionId, int] = {}
        self._heap: list[tuple[int, ExecutionId]] = []
        self._changed = asyncio.Event()

    def arm(self, execution: ExecutionId, at_ms: int | None) -> None:
        if at_ms is None:
            self._armed.pop(execution, None)
            self._compact()
            return
        armed = self._armed.get(execution)
        if armed is not None and armed <= at_ms:
            return
        self._armed[execution] = at_ms
        heapq.heappush(self._heap, (at_ms, execution))
        if self._heap[0][1] == execution:
            self._changed.set()

    def arm_soon(self, execution: ExecutionId) -> None:
        """Look at an execution again after a moment, because what became of it is unknown."""
        self.arm(execution, self._clock.now_ms() + _SOON_MS)

    async def run(self) -> None:
        while True:
            self._fire_due()
            nap_s = _LONGEST_NAP_S
            if self._heap:
                nap_s = min(nap_s, max(0.0, (self._heap[0][0] - self._clock.now_ms()) / 1000))
            self._changed.clear()
            nap = asyncio.ensure_future(self._clock.sleep(nap_s))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((nap, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
                changed.cancel()

    def _fire_due(self) -> None:
        now = self._clock.now_ms()
        while self._heap and self._heap[0][0] <= now:
            at_ms, execution = heapq.heappop(self._heap)
            if self._armed.get(execution) == at_ms:
                del self._armed[execution]
                self._fire(execution)

    def _compact(self) -> None:
        """Entries of ended executions are skipped when they come up; drop them once they outnumber the live ones."""
        if len(self._heap) > 2 * len(self._armed) + _STALE_MAX:
            self._heap = [(at_ms, execution) for execution, at_ms in self._armed.items()]
            heapq.heapify(self._heap)
