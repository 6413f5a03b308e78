"""Gets results to their shards, however long the bus is away, and never has finished work done again.

Called by every `mailbox`; publishes, and lets `spool` keep what the stream has not confirmed in time. On start it
resends what an earlier process left on disk. Knows nothing of agents and decides nothing about attempts.
"""

import asyncio
from collections.abc import Coroutine

import structlog

from agentflow.clock import Clock
from agentflow.contracts.message import Message, decode, encode, sealed
from agentflow.errors import AgentFlowError, Rejected
from agentflow.ports import BusUnavailable, MessageBus
from worker.handover import Desk, HandOver
from worker.spool import Spool, SpooledResult, SpoolFull

log = structlog.get_logger(__name__)

_PAUSE_S_FIRST = 0.1
_PAUSE_S_MAX = 5.0
_LATE_S = 0.25  # a healthy stream confirms in a few milliseconds; longer may mean it is away
_LOOK_S = 0.1
_REMEMBERED_MAX = 10_000
_KEPT_MAX = 256  # of those, with the result itself: one may have up to a quarter of a megabyte


class _Underway:
    __slots__ = ("desk", "is_spooled", "message", "owner", "since_s", "subject")

    def __init__(
        self, subject: str, message: Message, since_s: float, owner: str | None = None, desk: Desk | None = None
    ) -> None:
        self.desk = desk
        self.owner = owner
        self.subject = subject
        self.message = message
        self.since_s = since_s
        self.is_spooled = False


class Reporter:
    def __init__(self, *, bus: MessageBus, clock: Clock, spool: Spool | None) -> None:
        self._bus = bus
        self._clock = clock
        self._spool = spool
        self._hand_over = HandOver(bus)
        self._underway: dict[str, _Underway] = {}  # oldest first
        self._sent: dict[str, None] = {}  # what the stream has, the newest of it
        self._kept: dict[str, _Underway] = {}  # the newest of those, to be sent again
        self._first: list[str] = []  # to be on disk before they are published
        self._spooling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def unsent(self) -> int:
        return len(self._underway)

    def start(self) -> None:
        if self._spool is None:
            return
        self._spawn(self._watch())
        for result in self._spool.left:
            try:
                message = decode(result.message)
            except AgentFlowError as error:
                log.warning("spool.refused", result=result.dedup_id, reason=error.message)
                self._spool.done(result.dedup_id)
                continue
            underway = self._underway[result.dedup_id] = _Underway(result.subject, message, self._clock.monotonic_s())
            underway.is_spooled = True
            self._spawn(self._deliver(result.dedup_id, underway))
        if self._spool.left:
            log.info("spool.resending", results=len(self._spool.left))

    def has(self, dedup_id: str) -> bool:
        """Whether this result is made: on its way, or with the stream already."""
        return dedup_id in self._underway or dedup_id in self._sent

    async def send_again(self, dedup_id: str) -> bool:
        """A step was asked for whose result is made. Whoever asks may not have it: a stream can lose what it confirmed.

        False when the result is not at hand any more.
        """
        while dedup_id in self._underway:
            await self._clock.sleep(_LOOK_S)
        kept = self._kept.get(dedup_id)
        if kept is None:
            return False
        await self.send(kept.subject, kept.message, dedup_id)
        return True

    async def send(
        self,
        subject: str,
        message: Message,
        dedup_id: str,
        *,
        owner: str | None = None,
        desk: Desk | None = None,
        spool_first: bool = False,
    ) -> None:
        """Returns once it is committed, or the stream has it. Cancelled, it is still spooled if `close` came before.

        An `owner` may give the `desk` what follows.
        """
        underway = self._underway[dedup_id] = _Underway(subject, message, self._clock.monotonic_s(), owner, desk)
        if spool_first:
            self._first.append(dedup_id)
            await self._spool_first(underway)
        await self._deliver(dedup_id, underway)

    async def close(self) -> None:
        """Nothing that is finished may be forgotten: what the stream has not confirmed goes to disk."""
        unsent = [dedup_id for dedup_id, underway in self._underway.items() if not underway.is_spooled]
        await self._spool_now(unsent)
        self._hand_over.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._underway:
            log.warning("results.unsent", results=len(self._underway), spooled=self._spool is not None)
        if self._spool is not None:
            self._spool.close()

    async def _deliver(self, dedup_id: str, underway: _Underway) -> None:
        if underway.owner is None or not await self._hand_over.is_committed(
            underway.owner, underway.message, underway.desk
        ):
            await self._publish(dedup_id, underway)
        del self._underway[dedup_id]
        self._sent[dedup_id] = None
        if len(self._sent) > _REMEMBERED_MAX:
            del self._sent[next(iter(self._sent))]
        self._kept[dedup_id] = underway
        if len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        if underway.is_spooled and self._spool is not None:
            self._spool.done(dedup_id)

    async def _publish(self, dedup_id: str, underway: _Underway) -> None:
        pause_s = _PAUSE_S_FIRST
        while True:
            try:
                await self._bus.publish(underway.subject, sealed(underway.message), dedup_id=dedup_id, confirm=True)
            except BusUnavailable as error:
                log.warning("result.kept", result=dedup_id, reason=error.message, again_in_s=pause_s)
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
            except Rejected:
                # No bus will ever take it. The control plane's timeout ends the step; this says why.
                log.exception("result.unpublishable", result=dedup_id)
                return
            else:
                return

    async def _watch(self) -> None:
        """Instead of a timer for each publish, which would cost every step for what happens to few."""
        while True:
            await self._clock.sleep(_LOOK_S)
            late_s = self._clock.monotonic_s() - _LATE_S
            late = []
            for dedup_id, underway in self._underway.items():
                if underway.since_s > late_s:
                    break
                if not underway.is_spooled:
                    late.append(dedup_id)
            await self._spool_now(late)

    async def _spool_first(self, underway: _Underway) -> None:
        """All that came while the last were written go together, with one sync."""
        async with self._spooling:
            if not underway.is_spooled:
                waiting, self._first = self._first, []
                await self._keep(waiting)

    async def _spool_now(self, dedup_ids: list[str]) -> None:
        if dedup_ids:
            async with self._spooling:
                await self._keep(dedup_ids)

    async def _keep(self, dedup_ids: list[str]) -> None:
        if self._spool is None:
            return
        waiting = {each: underway for each in dedup_ids if (underway := self._underway.get(each))}
        results = [SpooledResult(each, item.subject, encode(sealed(item.message))) for each, item in waiting.items()]
        try:
            await asyncio.to_thread(self._spool.keep, results)
        except SpoolFull as error:
            log.error("spool.full", results=len(results), reason=error.message)  # noqa: TRY400
            return
        for each, underway in waiting.items():
            underway.is_spooled = True
            if each not in self._underway:  # confirmed while it was being written
                self._spool.done(each)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
