"""What tools did, published: each call to `tools.calls` and `tools.audit`, each word with the outside to `tools.audit`.

Fed by `agent` and by the egress proxy, which never wait here; one task hands records to the stream in order and tries
again while the bus is away. A step's result is held back until its call's record is stored: no effect without a trace.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.message import Message, seal
from agentflow.contracts.tool_records import CallSite, EgressRecord, ToolCallRecord, ToolRecord
from agentflow.errors import Rejected
from agentflow.ids import MessageId, TraceId, UlidSource, WorkerId
from agentflow.ports import BusUnavailable, MessageBus

_PAUSE_S_FIRST, _PAUSE_S_MAX = 0.1, 5.0

log = structlog.get_logger(__name__)


class ToolRecords:
    def __init__(self, *, ids: UlidSource, clock: Clock, worker: WorkerId, pool: str) -> None:
        self.worker = worker
        self._pool = pool
        self._ids = ids
        self._clock = clock
        self._queue: asyncio.Queue[ToolRecord] = asyncio.Queue()
        self._publishing: asyncio.Task[None] | None = None

    @property
    def now_ms(self) -> Callable[[], int]:
        return self._clock.now_ms

    def new_id(self) -> str:
        return self._ids.ulid()

    def new_trace(self) -> TraceId:
        """For a call outside of any execution."""
        return self._ids.trace()

    def publish_to(self, bus: MessageBus) -> None:
        """From now on. What was noted before goes first."""
        self._publishing = asyncio.create_task(self._publish(bus), name="tool records")

    def note(self, record: ToolRecord) -> None:
        self._queue.put_nowait(record)

    async def stored(self) -> None:
        """Until everything noted so far is in the stream."""
        if self._publishing is not None:
            await self._queue.join()

    async def close(self) -> None:
        """What the bus takes within a moment still goes; a worker that is told to leave does not wait longer."""
        if self._publishing is None:
            return
        try:
            async with asyncio.timeout(_PAUSE_S_MAX):
                await self._queue.join()
        except TimeoutError:
            log.warning("tool.records_lost", count=self._queue.qsize())
        self._publishing.cancel()
        await asyncio.gather(self._publishing, return_exceptions=True)

    async def _publish(self, bus: MessageBus) -> None:
        while True:
            record = await self._queue.get()
            try:
                await self._publish_one(bus, record)
            finally:
                self._queue.task_done()

    async def _publish_one(self, bus: MessageBus, record: ToolRecord) -> None:
        message = self._message(record)
        stems = (subjects.TOOL_CALLS, subjects.TOOL_AUDIT)
        readers = stems if isinstance(record, ToolCallRecord) else stems[1:]
        wanted = [subjects.of_pool(stem, self._pool) for stem in readers]
        pause_s = _PAUSE_S_FIRST
        while wanted:
            try:
                await bus.publish(wanted[0], message, dedup_id=f"{message.id}/{wanted[0]}", confirm=True)
                del wanted[0]
            except BusUnavailable as error:
                log.warning("tool.record_kept", reason=error.message, again_in_s=pause_s)
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
            except Rejected:
                log.exception("tool.record_unpublishable", record=type(record).__name__)
                return

    def _message(self, record: ToolRecord) -> Message:
        message_id = MessageId(self._ids.ulid())
        site: CallSite = record.site
        at_ms = record.at_ms if isinstance(record, EgressRecord) else record.started_at_ms + record.duration_ms
        return seal(
            id=message_id,
            trace_id=TraceId(site.trace_id),
            span_id=message_id[-16:].lower(),
            sender=self.worker,
            to="audit",
            type="event",
            payload=msgspec.to_builtins(record),
            metadata={
                "tenant_id": site.tenant_id,
                "execution_id": site.execution_id,
                "step": site.step,
                "attempt": site.attempt,
                "tool": site.tool,
            },
            at_ms=at_ms,
        )
