"""The feed: every committed event once, in one order, from any place on, on any replica.

A sequence number is the event's position in the store, so it means the same everywhere and for ever: a reader that was
cut off goes on where it was. The store is the truth; the bus only says when to look. While somebody watches, one task
keeps the newest events in memory, once for all readers. Nobody has a queue of their own: a reader that had caught up
and then falls out of that memory is too slow, is told so and let go; it can come back with its number.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import msgspec
import structlog

from agentflow import limits
from agentflow.errors import Rejected, Unavailable
from agentflow.execution.events import Event
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import Subscription

_log = structlog.get_logger(__name__)


class LiveEvent(msgspec.Struct, frozen=True):
    seq: int
    tenant: TenantId
    workflow: str
    execution: ExecutionId
    version: int
    event: Event


class Topic(msgspec.Struct, frozen=True):
    """What a reader wants to see: all of its tenant, or one workflow, or one execution of it."""

    tenant: TenantId
    workflow: str | None = None
    execution: ExecutionId | None = None

    def fits(self, event: LiveEvent) -> bool:
        return (
            event.tenant == self.tenant
            and (self.workflow is None or event.workflow == self.workflow)
            and (self.execution is None or event.execution == self.execution)
        )


class LivePage(msgspec.Struct, frozen=True):
    events: Sequence[LiveEvent]
    seq: int  # where the next page begins; nothing at or below it can appear any more


class LiveEvents(Protocol):
    """The store, in the order of sequence numbers."""

    async def page(self, *, after: int, limit: int, topic: Topic | None = None) -> LivePage: ...

    async def newest(self) -> int:
        """A number that nothing can appear at or below any more, as high as possible."""
        ...


class ReaderTooSlow(Rejected):
    code = "AF1014"

    def __init__(self, seq: int) -> None:
        super().__init__(
            "You read more slowly than events happen, and were let go. Nothing is lost.",
            hint=f"Subscribe again after {seq}, and read faster, or watch less at once.",
        )
        self.seq = seq


class FeedStopped(Unavailable):
    code = "AF2006"

    def __init__(self) -> None:
        super().__init__(
            "This control plane is being stopped, and its watchers with it.",
            hint="Connect again, and go on from the last number you have seen.",
        )


class Feed:
    def __init__(
        self,
        events: LiveEvents,
        *,
        listen: Callable[[Callable[[bytes], None]], Awaitable[Subscription]],
        kept_max: int = limits.LIVE_EVENTS_KEPT,
        idle_s: float = limits.LIVE_IDLE_S,
    ) -> None:
        self._events = events
        self._listen = listen
        self._kept_max = kept_max
        self._idle_s = idle_s
        self._kept: list[LiveEvent] = []
        self._floor = self._head = 0  # everything after the one and up to the other is kept
        self._readers = 0
        self._tailing: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._moved = asyncio.Event()
        self._closed = False
        self._beginning = asyncio.Lock()

    def close(self) -> None:
        """Let every reader go; they find another replica, or us when we are back."""
        self._closed = True
        self._moved.set()
        if self._tailing is not None:
            self._tailing.cancel()

    async def read(self, topic: Topic, *, after: int | None = None) -> AsyncGenerator[LivePage, None]:
        """Pages without end: what happened since `after` (without it, since now), then what happens.

        An empty page is a sign of life, and says how far the reader has come. Ends when the replica stops; raises
        `ReaderTooSlow` where a reader that had caught up was left behind.
        """
        async with self._reading():
            seq = self._head if after is None else after
            yield LivePage((), seq)
            caught_up = False
            while not self._closed:
                moved = self._moved
                if seq < self._floor:
                    if caught_up:
                        raise ReaderTooSlow(seq)
                    page = await self._events.page(after=seq, limit=limits.LIVE_PAGE, topic=topic)
                    if page.seq == seq:  # the store is behind what we have kept: cannot be, but must not spin
                        seq = self._floor
                    if page.events:
                        yield page
                    seq = max(seq, page.seq)
                    continue
                caught_up = True
                news = self._kept[bisect_right(self._kept, seq, key=lambda event: event.seq) :]
                seq = max(seq, self._head)
                for first in range(0, len(news), limits.LIVE_PAGE):
                    fitting = [event for event in news[first : first + limits.LIVE_PAGE] if topic.fits(event)]
                    if fitting:
                        yield LivePage(fitting, fitting[-1].seq)
                if not await self._wait(moved):
                    yield LivePage((), seq)

    async def _wait(self, moved: asyncio.Event) -> bool:
        """False when nothing has happened for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._idle_s):
                await moved.wait()
                return True
        return False

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        self._readers += 1
        try:
            async with self._beginning:
                if self._tailing is None:
                    self._kept.clear()
                    self._floor = self._head = await self._events.newest()
                    self._tailing = asyncio.create_task(self._tail(), name="live feed")
            yield
        finally:
            self._readers -= 1
            if self._readers == 0 and self._tailing is not None:
                self._tailing.cancel()
                self._tailing = None

    async def _tail(self) -> None:
        """Keep the newest events while somebody reads. Looks when the bus says so, and once in a while regardless."""
        listening: Subscription | None = None
        try:
            with suppress(Unavailable):  # then nobody hints, and looking once in a while has to do
                listening = await self._listen(lambda _: self._hint.set())
            while True:
                self._hint.clear()
                full = await self._look()
                await asyncio.sleep(limits.LIVE_PACE_S)  # what happens in between comes in one look
                if not full:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(limits.LIVE_LOOK_S):
                            await self._hint.wait()
        finally:
            if listening is not None:
                await listening.stop()

    async def _look(self) -> bool:
        """Whether there may be more at once."""
        try:
            page = await self._events.page(after=self._head, limit=limits.LIVE_PAGE)
        except Unavailable as error:
            _log.warning("feed.postponed", reason=error.message)
            return False
        except Exception:  # noqa: BLE001 - readers stay, and go on once it is mended
            _log.exception("feed.broken", after=self._head)
            return False
        self._keep(page)
        return len(page.events) == limits.LIVE_PAGE

    def _keep(self, page: LivePage) -> None:
        if page.seq == self._head:
            return
        self._kept += page.events
        self._head = page.seq
        over = len(self._kept) - self._kept_max
        if over > 0:
            self._floor = self._kept[over - 1].seq
            del self._kept[:over]
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
