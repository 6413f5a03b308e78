"""A worker's life: start its mailboxes, say it is ready, and on request stop taking, finish, and go.

Built by `wiring`, told to stop by `__main__` (or a test), and told what to leave off by the control plane. What is
not finished when patience ends is reported as such, so another worker takes it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import CancelSteps, ReleaseState, WorkerControl
from agentflow.ids import WorkerId
from agentflow.ports import MessageBus
from worker.heartbeat import Heart
from worker.mailbox import Mailbox
from worker.reporter import Reporter

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
        self,
        mailboxes: Sequence[Mailbox],
        *,
        bus: MessageBus,
        reporter: Reporter,
        clock: Clock,
        worker: WorkerId,
        pool: str,
        drain_s: float,
        release: Callable[[ReleaseState], None] = lambda _: None,
        sandbox: str = "",
    ) -> None:
        self._mailboxes = mailboxes
        self._bus = bus
        self._reporter = reporter
        self._clock = clock
        self._worker = worker
        self._pool = pool
        self._drain_s = drain_s
        self._release = release
        self._heart = Heart(bus=bus, clock=clock, worker=worker, pool=pool, mailboxes=mailboxes, sandbox=sandbox)
        self._control = msgspec.json.Decoder[WorkerControl](WorkerControl)
        self.is_taking = False

    async def serve(self, stop: StopRequests) -> None:
        """Returns when asked to stop and all is finished or given back."""
        await self._heart.open()
        beating = asyncio.create_task(self._heart.beat(lambda: stop.asked), name="heartbeat")
        self._reporter.start()
        try:
            await self._bus.listen(subjects.of_pool(subjects.WORKER_CONTROL, self._pool), self._told)
            for mailbox in self._mailboxes:
                await mailbox.start()
            self.is_taking = True
            names = [mailbox.name for mailbox in self._mailboxes]
            log.info("worker.ready", worker=self._worker, pool=self._pool, agents=names)
            await stop.wait()
            await self._drain(stop)
        finally:
            self.is_taking = False
            await asyncio.gather(*(mailbox.close() for mailbox in self._mailboxes))
            await self._reporter.close()
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await self._heart.say_goodbye()
        log.info("worker.stopped", worker=self._worker)

    def _told(self, raw: bytes) -> None:
        try:
            order = self._control.decode(raw)
        except msgspec.DecodeError as error:
            log.warning("control.refused", reason=str(error))
            return
        match order:
            case CancelSteps():
                ended = sum(mailbox.cancel(order) for mailbox in self._mailboxes)
                if ended:
                    log.info("steps.cancelled", execution=order.execution_id, steps=ended, reason=order.reason)
            case ReleaseState():
                self._release(order)

    async def _drain(self, stop: StopRequests) -> None:
        self.is_taking = False
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
