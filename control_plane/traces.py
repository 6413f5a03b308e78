"""Everything that was done under one trace id: the execution that began it, its children, their steps and tool calls.

Made from committed events and from what workers put on record about tools, when somebody looks. A trace id begins
with the moment it was made, so the execution that began it is found by its start, without an index of its own.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from agentflow import limits
from agentflow.errors import NotFound
from agentflow.execution.spans import Span, span_id, spans
from agentflow.ids import ExecutionId, TenantId, derived_execution
from agentflow.ports import StoredEvent
from control_plane.audit.log import AuditFilter, Links

_TRACE_CHARS = 32
_CHANCE_BITS = 80  # of a ULID, behind its 48 bits of milliseconds
_EARLIER_MS, _LATER_MS = 1_000, 5_000  # between making a trace id and stamping the start that carries it
_SLACK_MS = 60_000  # how late a worker may put a call on record


class TraceNotFound(NotFound):
    code = "AF1284"

    def __init__(self, trace: str) -> None:
        super().__init__(
            f"There is no trace {trace!r}.",
            hint="A start answers with its `trace_id`; `af executions trace EXECUTION` finds it for you.",
        )


class Record(Protocol):
    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]: ...


class Beginnings(Protocol):
    async def with_trace(self, tenant: TenantId, trace: str, *, from_ms: int, until_ms: int) -> Sequence[ExecutionId]:
        """Executions that started in that time and have this trace, in the order of their starts."""
        ...


class TraceView(msgspec.Struct, frozen=True):
    trace_id: str
    spans: list[Span]
    truncated: bool  # there is more than one look may take


class Traces:
    def __init__(self, beginnings: Beginnings, record: Record, links: Links) -> None:
        self._beginnings = beginnings
        self._record = record
        self._links = links

    async def find(self, tenant: TenantId, trace: str) -> TraceView:
        begun_ms = _made_at_ms(trace)
        rest = list(
            await self._beginnings.with_trace(
                tenant, trace, from_ms=begun_ms - _EARLIER_MS, until_ms=begun_ms + _LATER_MS
            )
        )
        if not rest:
            raise TraceNotFound(trace)
        found: list[Span] = []
        known: set[ExecutionId] = set()
        room = limits.LOOKED_BACK_EVENTS_MAX
        while rest and room > 0 and len(known) < limits.TRACE_EXECUTIONS_MAX:
            execution = rest.pop(0)
            if execution in known:
                continue
            known.add(execution)
            stored = await self._record.read(tenant, execution, limit=room)
            room -= len(stored)
            made = spans(one.event for one in stored)
            for span in made:
                if span.kind == "child":
                    child = derived_execution(made[0].started_at_ms, f"{execution}/{span.attributes['path']}")
                    span.attributes["execution_id"] = child
                    rest.append(child)
            found += made
        calls, more = await self._tool_calls(tenant, found, known)
        return TraceView(trace, sorted([*found, *calls], key=lambda span: span.started_at_ms), bool(rest) or more)

    async def _tool_calls(
        self, tenant: TenantId, found: Sequence[Span], known: set[ExecutionId]
    ) -> tuple[list[Span], bool]:
        """Spans of calls, each below the attempt that it was made for."""
        last = [span.ended_at_ms for span in found]
        until_ms = None if any(end is None for end in last) else max(end or 0 for end in last) + _SLACK_MS
        wanted = AuditFilter(
            action="tools.call", since_ms=min(span.started_at_ms for span in found), until_ms=until_ms
        )  # fmt: skip
        calls: list[Span] = []
        after, looked = None, 0
        while looked < limits.TRACE_RECORDS_MAX:
            page = await self._links.page(
                tenant, wanted, limit=limits.LIST_PAGE_MAX, after=after, newest_first=False
            )  # fmt: skip
            for link in page:
                details = link.record["details"]
                if details.get("execution_id") in known:
                    calls.append(_call(details, link.record["resource"]["id"]))
            if len(page) < limits.LIST_PAGE_MAX:
                return calls, False
            after, looked = page[-1].seq, looked + len(page)
        return calls, True


def _call(details: dict[str, object], tool: str) -> Span:
    execution = ExecutionId(str(details["execution_id"]))
    fault = details.get("fault")
    started_ms, took_ms = int(str(details["started_at_ms"])), int(str(details["duration_ms"]))
    return Span(
        span_id=span_id(execution, "tool_call", str(details["call_id"])),
        parent_span_id=span_id(execution, "attempt", f"{details['step']}#{details['attempt']}"),
        kind="tool_call",
        name=tool,
        execution=execution,
        started_at_ms=started_ms,
        ended_at_ms=started_ms + took_ms,
        status="ok" if fault is None else "error",
        attributes={
            key: details[key]
            for key in ("tool_version", "backend", "isolation", "cpu_ms", "worker")
            if details.get(key) is not None
        },
    )


def _made_at_ms(trace: str) -> int:
    try:
        return int(trace, 16) >> _CHANCE_BITS if len(trace) == _TRACE_CHARS else -1
    except ValueError:
        raise TraceNotFound(trace) from None
