"""Who did what, from the ways in to the database: notes begun, finished, and refusals put on record.

A note whose request changed something was written with it, at no cost of its own. The others (a refusal, an order that
changed nothing, a tool tried out) wait here for one transaction that takes all of them: whoever comes while one is
being written goes with the next.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from agentflow.clock import Clock
from agentflow.contracts.audit import Actor, AuditEntry, Outcome, Resource
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.ids import TenantId
from agentflow.limits import AUDIT_BATCH_MAX, AUDIT_WAITING_MAX
from control_plane.audit.notes import Note

_log = structlog.get_logger(__name__)


class PendingStore(Protocol):
    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Durable when it returns. What is there already stays as it is."""
        ...


class TrailFull(Unavailable):
    code = "AF2008"

    def __init__(self, waiting: int) -> None:
        super().__init__(
            f"{waiting} audit records already wait to be written, and nothing is done without its record.",
            hint="Send the request again in a moment; if this lasts, the database is the bottleneck.",
        )


class Trail:
    def __init__(
        self, store: PendingStore, *, clock: Clock, new_id: Callable[[], str], wake: Callable[[TenantId], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._wake = wake
        self._waiting: list[tuple[AuditEntry, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def begin(self, tenant: TenantId, actor: Actor, action: str, resource: Resource, details: dict[str, Any]) -> Note:
        return Note(
            id=f"aud_{self._new_id()}",
            tenant=tenant,
            actor=actor,
            action=action,
            resource=resource,
            at_ms=self._clock.now_ms(),
            details=details,
        )

    async def finish(self, note: Note, outcome: Outcome = "done") -> None:
        """Before the answer: the note is durable when this returns."""
        if not note.written:
            await self.keep(note.entry(outcome))
        note.finished = True
        self._wake(note.tenant)

    def given_up(self, note: Note) -> None:
        """The request failed. What it had committed before that is on record."""
        if note.written:
            self._wake(note.tenant)

    def written_beside(self, tenant: TenantId) -> None:
        """A record of no request was written with what it tells of: it only wants its place."""
        self._wake(tenant)

    async def deny(self, note: Note) -> None:
        """A refusal stays one, whether or not it could be put on record."""
        try:
            await self.finish(note, "denied")
        except AgentFlowError as error:
            _log.error("audit.denial_not_recorded", action=note.action, actor=note.actor.id, reason=error.message)

    async def keep(self, entry: AuditEntry) -> None:
        if len(self._waiting) >= AUDIT_WAITING_MAX:
            raise TrailFull(len(self._waiting))
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, kept))
        if self._writing is None:
            # In a context of its own: the note of whoever happens to be first is not what is being done here.
            self._writing = asyncio.create_task(self._write(), name="audit trail", context=contextvars.Context())
        await kept

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:AUDIT_BATCH_MAX], self._waiting[AUDIT_BATCH_MAX:]
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: list[tuple[AuditEntry, "asyncio.Future[None]"]]) -> None:
        try:
            await self._store.add([entry for entry, _ in batch])
        except BaseException as error:
            for _, kept in batch:
                if not kept.done():
                    kept.set_exception(error if isinstance(error, AgentFlowError) else TrailFull(len(batch)))
            if not isinstance(error, AgentFlowError):
                raise
            return
        for entry, kept in batch:
            entry.written = True
            if not kept.done():
                kept.set_result(None)
