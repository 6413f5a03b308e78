"""A worker's sign of life, broadcast and forgotten: who is there, what it hosts, how busy it is."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import Heartbeat
from agentflow.ids import WorkerId
from agentflow.ports import BusUnavailable, MessageBus
from worker.mailbox import Mailbox

log = structlog.get_logger(__name__)


async def beat(
    *, bus: MessageBus, clock: Clock, worker: WorkerId, mailboxes: Sequence[Mailbox], is_draining: Callable[[], bool]
) -> None:
    """Until cancelled. A beat the bus cannot take is left out: the next one says more."""
    started_at_ms = clock.now_ms()
    while True:
        heartbeat = Heartbeat(
            worker=worker,
            agents={mailbox.name: mailbox.running for mailbox in mailboxes},
            started_at_ms=started_at_ms,
            at_ms=clock.now_ms(),
            draining=is_draining(),
        )
        try:
            await bus.broadcast(subjects.HEARTBEATS, msgspec.json.encode(heartbeat))
        except BusUnavailable as error:
            log.debug("heartbeat.skipped", reason=error.message)
        await clock.sleep(limits.HEARTBEAT_S)
