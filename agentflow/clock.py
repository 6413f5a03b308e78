"""Time as a port: the one place that asks the machine what time it is.

Services are given a `Clock` by their composition root; tests give a `ControlledClock` and move it by hand.
The pure rooms see no clock at all: time reaches them inside messages.
"""

import asyncio
import heapq
import time
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch, for what is recorded and compared between machines."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step back, for measuring how long something took in this process."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ControlledClock:
    """Stands still until `advance` is called; sleepers wake in the order of their deadlines."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(start_ms)
        self._start_ms = float(start_ms)
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + seconds * 1000, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move time on, letting each sleeper run at its own moment before the next one wakes."""
        target = self._now_ms + seconds * 1000
        while self._sleepers and self._sleepers[0][0] <= target:
            self._now_ms, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await asyncio.sleep(0)
        self._now_ms = target


def rfc3339(at_ms: int) -> str:
    """`2026-11-18T06:00:00.123Z`: how a moment is written wherever people or other systems read it."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(at_s: int) -> str:
    """All that is written in one second shares it, and it is most of the work."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_rfc3339(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
