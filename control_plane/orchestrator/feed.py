"""Tells whoever watches what was committed: one message for all that a workflow's executions did in a moment.

Told by the commit loop after each commit; sends a little later, because nobody watches by the millisecond and a
message for each commit of each execution costs as much as its next step. Best effort: whoever must not miss anything
reads the event store.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.claims import parted
from agentflow.contracts.message import seal
from agentflow.errors import Rejected
from agentflow.execution.events import Event
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, TraceId, UlidSource, shard_of
from agentflow.ports import BusUnavailable, MessageBus
from control_plane.orchestrator.outbound import SENDER, workflow_of

_log = structlog.get_logger(__name__)


class _Told(msgspec.Struct, frozen=True):
    execution: ExecutionId
    trace: TraceId
    after_version: int
    events: tuple[Event, ...]


class Feed:
    def __init__(self, *, bus: MessageBus, clock: Clock, ids: UlidSource, shards: int) -> None:
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._shards = shards
        self._told: dict[tuple[TenantId, str, int], list[_Told]] = {}  # by tenant, workflow and shard
        self._filled = asyncio.Event()

    def tell(self, state: ExecutionState, after_version: int, events: tuple[Event, ...]) -> None:
        about = (state.tenant, workflow_of(state).name, shard_of(state.execution, self._shards))
        self._told.setdefault(about, []).append(_Told(state.execution, state.trace, after_version, events))
        self._filled.set()

    async def run(self) -> None:
        while True:
            await self._filled.wait()
            await self._clock.sleep(limits.FEED_EVERY_S)
            await self.send()

    async def send(self) -> None:
        told, self._told = self._told, {}
        self._filled.clear()
        for (tenant, workflow, shard), commits in told.items():
            for first in range(0, len(commits), limits.FEED_COMMITS_MAX):
                part = commits[first : first + limits.FEED_COMMITS_MAX]
                try:
                    await self._publish(tenant, workflow, shard, part)
                except Rejected as error:
                    _log.warning("feed.skipped", workflow=workflow, shard=shard, reason=error.message)
                except BusUnavailable as error:
                    _log.warning("feed.unheard", commits=sum(map(len, told.values())), reason=error.message)
                    return

    async def _publish(self, tenant: TenantId, workflow: str, shard: int, commits: list[_Told]) -> None:
        message_id = self._ids.message()
        message = seal(
            id=message_id,
            trace_id=commits[0].trace,
            span_id=message_id[-16:].lower(),
            sender=SENDER,
            to=workflow,
            type="event",
            payload={"v": 2, "workflow": workflow, "shard": shard, "commits": [_shown(told) for told in commits]},
            metadata={"tenant_id": tenant, "workflow": workflow},
            at_ms=self._clock.now_ms(),
        )
        subject = subjects.workflow_out(workflow, shard)
        await self._bus.publish(subject, message, dedup_id=f"{message_id}/feed", confirm=False)


def _shown(told: _Told) -> dict[str, Any]:
    return {
        "execution_id": told.execution,
        "after_version": told.after_version,
        "events": [_with_claims(event) for event in told.events],
    }


def _with_claims(event: Event) -> dict[str, Any]:
    plain, claims = parted(event)
    return {**plain, "claims": msgspec.to_builtins(claims)} if claims else plain
