"""The note of the request that is being answered: begun by the guards of the ways in, written with what it tells of.

It goes with the request's task and needs no hand to pass it on: the first transaction that changes something for the
request takes it along (`control_plane.storage.database`, or an execution's own append), and whoever makes something
new says what it is called (`concerning`). After the answer it is closed, and nothing that goes on in the background
can write it any more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentflow.contracts.audit import Actor, AuditEntry, AuditRecord, Outcome, Resource, entry_of
from agentflow.ids import TenantId


class Note:
    """What somebody is doing. What it says is settled when it is first written down."""

    __slots__ = (
        "_details",
        "_entry",
        "_open",
        "action",
        "actor",
        "at_ms",
        "finished",
        "id",
        "refused",
        "resource",
        "tenant",
    )

    def __init__(
        self,
        *,
        id: str,
        tenant: TenantId,
        actor: Actor,
        action: str,
        resource: Resource,
        at_ms: int,
        details: dict[str, Any],
    ) -> None:
        self.id = id
        self.tenant = tenant
        self.actor = actor
        self.action = action
        self.resource = resource
        self.at_ms = at_ms
        self._details = details
        self._entry: AuditEntry | None = None
        self._open = True
        self.refused = False
        self.finished = False

    def about(self, resource: Resource, details: dict[str, Any]) -> None:
        self.resource = resource
        self._details |= details

    def entry(self, outcome: Outcome = "done") -> AuditEntry:
        if self._entry is None:
            record = AuditRecord(
                self.id, self.tenant, self.at_ms, self.actor, self.action, self.resource, outcome, self._details
            )
            self._entry = entry_of(record)
        return self._entry

    @property
    def written(self) -> bool:
        return self._entry is not None and self._entry.written

    @property
    def open(self) -> bool:
        return self._open and not self.written

    def close(self) -> None:
        self._open = False


_current: ContextVar[Note | None] = ContextVar("agentflow_audit_note", default=None)


@contextmanager
def noting(note: Note | None) -> Iterator[None]:
    """While this block runs, `note` is what the request is on record for."""
    if note is None:
        yield
        return
    _current.set(note)  # a request has one note, so there is none to come back to; a stream may end in another context
    try:
        yield
    finally:
        note.close()
        _current.set(None)


def concerning(type: str, id: str, **details: Any) -> None:
    """What the request under way makes or changes, where its path could not name it. Outside of a request: nothing."""
    note = _current.get()
    if note is not None and note.open:
        note.about(Resource(type, id), details)


def refused() -> None:
    """Whoever asks may not do this: for the ways in that learn it only as the end of a call."""
    note = _current.get()
    if note is not None:
        note.refused = True


def due() -> AuditEntry | None:
    """What must be written with the next thing that is written; None where nothing must, or it is already."""
    note = _current.get()
    return note.entry() if note is not None and note.open else None
