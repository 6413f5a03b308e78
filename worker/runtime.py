"""A worker's life: start its mailboxes, say it is ready, and on request stop taking, finish, and go.

Built by `wiring`, told to stop by `__main__` (or a test). What is not finished when patience ends is given back
un-acked, so another worker takes it.
"""

import asyncio
from collections.abc import Sequence

import structlog

from agentflow.clock import Clock
from agentflow.ids import WorkerId
from agentflow.ports import MessageBus
from worker.heartbeat import beat
from worker.mailbox import Mailbox

log = structlog.get_logger(__name__)


class StopRequests:
    """Asked once: finish and go. Asked again: go now."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()

    def ask(self) -> None:
        (self._second if self._first.is_set() else self._first).set()

    @property
    def asked(self) -> bool:
        return self._first.is_set()

    async def wait(self) -> None:
        await self._first.wait()

    async def wait_urgent(self) -> None:
        await self._second.wait()


class Runtime:
    def __init__(
        self, mailboxes: Sequence[Mailbox], *, bus: MessageBus, clock: Clock, worker: WorkerId, drain_s: float
    ) -> None:
        self._mailboxes = mailboxes
        self._bus = bus
        self._clock = clock
        self._worker = worker
        self._drain_s = drain_s

    async def serve(self, stop: StopRequests) -> None:
        """Returns when asked to stop and all is finished or given back."""
        heartbeat = asyncio.create_task(
            beat(
                bus=self._bus,
                clock=self._clock,
                worker=self._worker,
                mailboxes=self._mailboxes,
                is_draining=lambda: stop.asked,
            ),
            name="heartbeat",
        )
        try:
            for mailbox in self._mailboxes:
                await mailbox.start()
            log.info("worker.ready", worker=self._worker, agents=[mailbox.name for mailbox in self._mailboxes])
            await stop.wait()
            await self._drain(stop)
        finally:
            await asyncio.gather(*(mailbox.close() for mailbox in self._mailboxes))
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)
        log.info("worker.stopped", worker=self._worker)

    async def _drain(self, stop: StopRequests) -> None:
        running = sum(mailbox.running for mailbox in self._mailboxes)
        log.info("worker.draining", worker=self._worker, running=running, within_s=self._drain_s)
        finishing = asyncio.ensure_future(self._finish())
        urgent = asyncio.ensure_future(stop.wait_urgent())
        await asyncio.wait([finishing, urgent], timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
        if not finishing.done():
            left = sum(mailbox.running for mailbox in self._mailboxes)
            log.warning("worker.gave_back", worker=self._worker, steps=left)
        finishing.cancel()
        urgent.cancel()
        await asyncio.gather(finishing, urgent, return_exceptions=True)

    async def _finish(self) -> None:
        await asyncio.gather(*(mailbox.stop_taking() for mailbox in self._mailboxes))
        await asyncio.gather(*(mailbox.wait_idle() for mailbox in self._mailboxes))
