"""The note of a request, in the transaction of what the request changes: see `control_plane.audit.notes`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.contracts.audit import AuditEntry
from agentflow.ids import TenantId
from control_plane.audit import notes
from control_plane.storage.tables import audit_pending

_CHANGED = "agentflow.changed"


def watch_changes(connection: AsyncConnection) -> None:
    """From here on, notice whether this transaction changes anything: a refusal in the end is nothing to record."""
    connection.info[_CHANGED] = False


def notice_changes(engine: Engine) -> None:
    """For every connection of a pool that writes, once."""

    @event.listens_for(engine, "after_cursor_execute")
    def executed(connection: Connection, cursor: Any, _statement: str, _values: Any, context: Any, _many: bool) -> None:
        if (context.isinsert or context.isupdate or context.isdelete) and cursor.rowcount != 0:
            connection.info[_CHANGED] = True


async def put_on_record(connection: AsyncConnection, tenant: TenantId | None) -> AuditEntry | None:
    """The entry that was written, if one was due; it counts as `written` once the transaction is committed.

    With a tenant, the connection may write for that one only: whose record is another's is written afterwards.
    """
    entry = notes.due() if connection.info[_CHANGED] else None
    if entry is None or (tenant is not None and entry.tenant != tenant):
        return None
    await add_pending(connection, [entry])
    return entry


async def add_pending(connection: AsyncConnection, entries: Sequence[AuditEntry]) -> None:
    """A record that was written before stays as it is."""
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [{"id": entry.id, "tenant_id": entry.tenant, "record": entry.record} for entry in entries]
    await connection.execute(insert(audit_pending).on_conflict_do_nothing(index_elements=["id"]), rows)
