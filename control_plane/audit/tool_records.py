"""What workers tell of tools (`tools.audit`), as audit records of the tenant it was done for.

A message is acked once its record is durable, so none is lost; one that comes again has the same id and is taken once.
Workers of one tenant cannot put anything on another's record: the pool they speak in is held against what they say.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import parse_rfc3339
from agentflow.contracts.audit import Actor, AuditEntry, AuditRecord, Outcome, Resource, entry_of
from agentflow.contracts.message import Message
from agentflow.contracts.pools import may_act_for
from agentflow.contracts.tool_records import EgressRecord, ToolCallRecord, ToolRecord
from agentflow.errors import AgentFlowError
from agentflow.ids import TenantId, decode_ulid
from agentflow.ports import Delivery, MessageBus, Subscription
from control_plane.audit.trail import Trail

_TRY_AGAIN_S = 1.0

_log = structlog.get_logger(__name__)


class ToolRecords:
    def __init__(self, trail: Trail, wake: Callable[[TenantId], None]) -> None:
        self._trail = trail
        self._wake = wake
        self._keeping: set[asyncio.Task[None]] = set()

    async def listen(self, bus: MessageBus) -> Subscription:
        return await bus.subscribe(subjects.tool_audit_reader(), self.receive)

    def receive(self, delivery: Delivery) -> None:
        try:
            entry = entry_from(delivery.message)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, AgentFlowError) as error:
            _log.error("audit.tool_record_refused", message=delivery.message.id, reason=str(error))
            delivery.ack()  # it will not become readable by coming again
            return
        if not may_act_for(delivery.pool, entry.tenant):
            _log.error(
                "audit.tool_record_refused", message=delivery.message.id, reason=f"not {delivery.pool}'s to tell"
            )
            delivery.ack()
            return
        keeping = asyncio.create_task(self._keep(delivery, entry), name="tool record")
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)

    async def _keep(self, delivery: Delivery, entry: AuditEntry) -> None:
        try:
            await self._trail.keep(entry)
        except AgentFlowError:
            delivery.nak(_TRY_AGAIN_S)
            return
        delivery.ack()
        self._wake(entry.tenant)


def entry_from(message: Message) -> AuditEntry:
    record: ToolRecord = msgspec.json.decode(message.payload, type=ToolRecord)
    details: dict[str, Any] = msgspec.to_builtins(record)
    site = details.pop("site")
    tool = site.pop("tool")
    decode_ulid(message.id)  # the record's id says when it was made
    return entry_of(
        AuditRecord(
            id=f"aud_{message.id}",
            tenant=TenantId(site.pop("tenant_id")),
            at_ms=parse_rfc3339(message.ts),
            actor=Actor("worker", message.sender),
            action="tools.call" if isinstance(record, ToolCallRecord) else "tools.egress",
            resource=Resource("tool", tool),
            outcome=_outcome(record),
            details={**site, **details},
        )
    )


def _outcome(record: ToolCallRecord | EgressRecord) -> Outcome:
    if isinstance(record, EgressRecord):
        return record.verdict
    return "done" if record.fault is None else "failed"
