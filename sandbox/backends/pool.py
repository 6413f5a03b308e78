"""Sandboxes started before their call is known, so that a call does not wait for one. Each is used once.

Keyed by everything that is fixed when a sandbox starts: tenant, profile, and what is mounted. A used one is thrown
away whole, never cleaned, so nothing can pass from one call to the next, let alone to another tenant.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

import structlog

from sandbox.backends.inmate import Inmate

Key = TypeVar("Key")

_IDLE_PER_KEY = 1  # the next one is started while this one serves

log = structlog.get_logger(__name__)


class Pool(Generic[Key]):
    """At most `idle_max` wait at once; of keys nobody asked for lately, the oldest go first."""

    def __init__(self, start: Callable[[Key, bool], Awaitable[Inmate]], *, idle_max: int) -> None:
        self._start = start
        self._idle_max = idle_max
        self._idle: OrderedDict[Key, list[Inmate]] = OrderedDict()
        self._behind: set[asyncio.Task[None]] = set()
        self._coming: dict[Key, int] = {}
        self._closed = False

    async def take(self, key: Key) -> Inmate:
        """A waiting one, or a new one."""
        waiting = self._idle.get(key)
        if waiting:
            inmate = waiting.pop()
            if not waiting:
                del self._idle[key]
            return inmate
        return await self._start(key, False)

    def give_back(self, key: Key, inmate: Inmate) -> None:
        """It has served: remove its remains, and have another one ready for the same key."""
        self._in_background(inmate.discard())
        self.warm(key)

    def warm(self, key: Key) -> None:
        if self._closed or self._idle_max == 0:
            return
        if len(self._idle.get(key, ())) + self._coming.get(key, 0) < _IDLE_PER_KEY:
            self._coming[key] = self._coming.get(key, 0) + 1
            self._in_background(self._prepare(key))

    async def warmed(self) -> None:
        """Return once everything under way in the background is done."""
        while self._behind:
            await asyncio.wait(self._behind)

    async def close(self) -> None:
        self._closed = True
        await self.warmed()
        for inmates in self._idle.values():
            await asyncio.gather(*(_end(inmate) for inmate in inmates))
        self._idle.clear()

    async def _prepare(self, key: Key) -> None:
        inmate = None
        try:
            inmate = await self._start(key, True)
            await inmate.ready()
        except Exception as error:  # noqa: BLE001 - the next call starts its own and meets the fault itself
            log.warning("sandbox.not_warmed", error=str(error))
            if inmate is not None:
                await _end(inmate)
            return
        finally:
            self._coming[key] -= 1
            if not self._coming[key]:
                del self._coming[key]
        self._idle.setdefault(key, []).append(inmate)
        self._idle.move_to_end(key)
        while sum(len(waiting) for waiting in self._idle.values()) > self._idle_max:
            oldest, waiting = next(iter(self._idle.items()))
            surplus = waiting.pop()
            if not waiting:
                del self._idle[oldest]
            await _end(surplus)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)


async def _end(inmate: Inmate) -> None:
    await inmate.end()
    await inmate.discard()
