"""Tells whoever watches that something was committed: one message for all executions of a workflow in a moment.

Told by the commit loop after each commit; sends a little later, because nobody watches by the millisecond. Says which
executions have come how far, and nothing of what happened: that is read from the event store, by whoever may see it.
Best effort, for the same reason.
"""

import asyncio
from itertools import islice

import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.message import seal
from agentflow.errors import Rejected
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, UlidSource, shard_of
from agentflow.ports import BusUnavailable, MessageBus
from control_plane.orchestrator.outbound import SENDER, workflow_of

_log = structlog.get_logger(__name__)


class Feed:
    def __init__(self, *, bus: MessageBus, clock: Clock, ids: UlidSource, shards: int) -> None:
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._shards = shards
        # Versions reached by executions, by tenant, workflow and shard.
        self._reached: dict[tuple[TenantId, str, int], dict[ExecutionId, int]] = {}
        self._filled = asyncio.Event()

    def tell(self, state: ExecutionState) -> None:
        about = (state.tenant, workflow_of(state).name, shard_of(state.execution, self._shards))
        self._reached.setdefault(about, {})[state.execution] = state.version
        self._filled.set()

    async def run(self) -> None:
        while True:
            await self._filled.wait()
            await self._clock.sleep(limits.FEED_EVERY_S)
            await self.send()

    async def send(self) -> None:
        told, self._reached = self._reached, {}
        self._filled.clear()
        for (tenant, workflow, shard), reached in told.items():
            left = iter(reached.items())
            while part := dict(islice(left, limits.FEED_EXECUTIONS_MAX)):
                try:
                    await self._publish(tenant, workflow, shard, part)
                except Rejected as error:
                    _log.warning("feed.skipped", workflow=workflow, shard=shard, reason=error.message)
                except BusUnavailable as error:
                    _log.warning("feed.unheard", executions=sum(map(len, told.values())), reason=error.message)
                    return

    async def _publish(self, tenant: TenantId, workflow: str, shard: int, reached: dict[ExecutionId, int]) -> None:
        message_id = self._ids.message()
        message = seal(
            id=message_id,
            trace_id=self._ids.trace(),  # its own: it tells of many executions
            span_id=message_id[-16:].lower(),
            sender=SENDER,
            to=workflow,
            type="event",
            payload={"v": 3, "workflow": workflow, "shard": shard, "reached": reached},
            metadata={"tenant_id": tenant, "workflow": workflow},
            at_ms=self._clock.now_ms(),
        )
        subject = subjects.workflow_out(workflow, shard)
        await self._bus.publish(subject, message, dedup_id=f"{message_id}/feed", confirm=False)
