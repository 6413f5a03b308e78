"""What workers may put on a tenant's record: what was done for that tenant, and nothing of another's."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agentflow.clock import SystemClock
from agentflow.contracts.audit import AuditEntry
from agentflow.contracts.message import seal
from agentflow.contracts.pools import SHARED
from agentflow.contracts.tool_records import CallSite, EgressRecord
from agentflow.ids import ExecutionId, MessageId, TraceId, UlidSource
from agentflow.testing import eventually
from control_plane.audit.tool_records import ToolRecords

IDS = UlidSource(SystemClock().now_ms)


class Kept:
    """A trail that keeps in memory."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def keep(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


def told_of(tenant: str, *, by: str) -> Any:
    record = EgressRecord(
        CallSite(tenant, ExecutionId("exec_1"), "fetch", 1, "http.request"), "denied", "http", "evil.example", 443, 1
    )
    message = seal(
        id=MessageId(IDS.ulid()),
        trace_id=TraceId("0" * 32),
        span_id="0" * 16,
        sender="wrk_1",
        to="audit",
        type="event",
        payload=msgspec.to_builtins(record),
        metadata={},
        at_ms=1,
    )
    delivery = SimpleNamespace(message=message, pool=by, acked=False)
    delivery.ack = lambda: setattr(delivery, "acked", True)
    return delivery


@pytest.mark.parametrize(("by", "kept"), [("acme", 1), (SHARED, 1), ("other", 0)])
async def test_a_worker_tells_only_of_its_own_tenant_unless_all_share_it(by: str, kept: int) -> None:
    trail, delivery = Kept(), told_of("acme", by=by)

    ToolRecords(trail, lambda _: None).receive(delivery)  # type: ignore[arg-type]

    await eventually(lambda: delivery.acked)
    assert [entry.tenant for entry in trail.entries] == ["acme"] * kept
