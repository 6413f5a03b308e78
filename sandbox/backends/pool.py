"""Sandboxes started before their call is known, so that a call does not wait for one. Each is used once.

Berthed by everything that is fixed when a sandbox starts: tenant, profile, and what is mounted. A used one is thrown
away whole, never cleaned, so nothing can pass from one call to the next, let alone to another tenant.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from agentflow.canonical import sha256_hex
from sandbox.backends.inmate import Inmate
from sandbox.policy import ExecProfile, profile_hash
from sandbox.tool_call import Container, ToolCall

_IDLE_PER_KEY = 1  # the next one is started while this one serves

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Berth:
    """Everything that is fixed when a sandbox starts; two calls with the same name may use the same kind of one."""

    name: str
    call: ToolCall = field(compare=False)
    profile: ExecProfile = field(compare=False)


def berth(call: ToolCall, profile: ExecProfile) -> Berth:
    program = msgspec.to_builtins(call.call) if isinstance(call.call, Container) else "the program inside"
    ways = [call.workspace, call.egress is not None, call.trusted]
    fixed = [call.tenant, profile_hash(profile), list(call.path), *ways, program]
    return Berth(sha256_hex(fixed), call, profile)


class Pool:
    """At most `idle_max` wait at once; of keys nobody asked for lately, the oldest go first."""

    def __init__(self, start: Callable[[Berth, bool], Awaitable[Inmate]], *, idle_max: int) -> None:
        self._start = start
        self.idle_max = idle_max
        self._idle: OrderedDict[Berth, list[Inmate]] = OrderedDict()
        self._behind: set[asyncio.Task[None]] = set()
        self._coming: dict[Berth, int] = {}
        self._closed = False

    async def take(self, key: Berth) -> Inmate:
        """A waiting one, or a new one."""
        waiting = self._idle.get(key)
        if waiting:
            inmate = waiting.pop()
            if not waiting:
                del self._idle[key]
            return inmate
        return await self._start(key, False)

    def give_back(self, key: Berth, inmate: Inmate) -> None:
        """It has served: remove its remains, and have another one ready for the same key."""
        self._in_background(inmate.discard())
        self.warm(key)

    def warm(self, key: Berth) -> None:
        if self._closed or self.idle_max == 0:
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

    async def _prepare(self, key: Berth) -> None:
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
        while sum(len(waiting) for waiting in self._idle.values()) > self.idle_max:
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
