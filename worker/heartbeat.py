"""A worker's sign of life, broadcast and forgotten: who is there, what it hosts, how busy it is."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import Heartbeat, HeldStep
from agentflow.ids import WorkerId
from agentflow.ports import BusUnavailable, MessageBus
from worker.mailbox import Mailbox

_LOOK_S = limits.HEARTBEAT_S / 5

log = structlog.get_logger(__name__)


class Heart:
    """Beats for one worker until it is cancelled; `say_goodbye` tells that nothing is lost with it."""

    def __init__(
        self,
        *,
        bus: MessageBus,
        clock: Clock,
        worker: WorkerId,
        pool: str,
        mailboxes: Sequence[Mailbox],
        sandbox: str = "",
    ) -> None:
        self._sandbox = sandbox
        self._pool = pool
        self._subject = subjects.of_pool(subjects.HEARTBEATS, pool)
        self._bus = bus
        self._clock = clock
        self._worker = worker
        self._mailboxes = mailboxes
        self._started_at_ms = clock.now_ms()
        self._told: frozenset[HeldStep] = frozenset()

    async def open(self) -> None:
        """Before the first beat: who is asked on this line and not found there is gone, and need not be waited for."""
        await self._bus.answer(subjects.of_pool(subjects.worker_line(self._worker), self._pool), _here)

    async def beat(self, is_draining: Callable[[], bool]) -> None:
        """A beat the bus cannot take is left out: the next one says more.

        What is taken between two beats would be unknown if we died: it is told a little after it came.
        """
        while True:
            self._told = frozenset(self._held())
            await self._say(draining=is_draining())
            next_at_s = self._clock.monotonic_s() + limits.HEARTBEAT_S
            while self._clock.monotonic_s() < next_at_s:
                await self._clock.sleep(_LOOK_S)
                if not self._told.issuperset(self._held()):
                    break

    def _held(self) -> Iterator[HeldStep]:
        return (step for mailbox in self._mailboxes for step in mailbox.held)

    async def say_goodbye(self) -> None:
        await self._say(draining=True, leaving=True)

    async def _say(self, *, draining: bool, leaving: bool = False) -> None:
        heartbeat = Heartbeat(
            worker=self._worker,
            agents={mailbox.name: mailbox.running for mailbox in self._mailboxes},
            started_at_ms=self._started_at_ms,
            at_ms=self._clock.now_ms(),
            draining=draining,
            steps=() if leaving else tuple(self._held()),
            leaving=leaving,
            sandbox=self._sandbox,
        )
        try:
            await self._bus.broadcast(self._subject, msgspec.json.encode(heartbeat))
        except BusUnavailable as error:
            log.debug("heartbeat.skipped", reason=error.message)


async def _here(_: bytes) -> bytes:
    return b""
