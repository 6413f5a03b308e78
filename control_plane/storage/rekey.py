"""Seals anew, under the ring's first key, whatever is stored under an older key or under none. While everybody works.

A batch is a transaction, and what is done is known by looking at the row: killed at any moment, it is simply run again.
An older key may be taken out once a run has found nothing left to do.
"""

from collections.abc import Callable

import msgspec
from sqlalchemy import Text, bindparam, cast, select, update

from agentflow.encryption.field import sealed_prefix
from agentflow.encryption.keyring import InvalidKeys
from agentflow.ports import ArtifactStore
from control_plane.storage.database import Database
from control_plane.storage.sealing import FieldSeal
from control_plane.storage.tables import event_store, execution_snapshots

_BATCH = 500  # rows in one transaction: a few milliseconds for whoever waits behind it

Progress = Callable[[str, int], None]


class Rekeyed(msgspec.Struct, frozen=True):
    """How much was sealed anew."""

    key: str
    events: int = 0
    snapshots: int = 0
    artifacts: int = 0


async def rekey(database: Database, seal: FieldSeal, artifacts: ArtifactStore, progress: Progress) -> Rekeyed:
    if seal.ring is None:
        raise InvalidKeys("there is none, so nothing can be encrypted")
    events = await _events(database, seal, seal.ring.primary, progress)
    snapshots = await _snapshots(database, seal, seal.ring.primary, progress)
    again = 0
    for use in await artifacts.shelves():
        again += await artifacts.reseal(use.shelf)
        progress("artifacts", again)
    return Rekeyed(seal.ring.primary, events, snapshots, again)


async def _events(database: Database, seal: FieldSeal, key: str, progress: Progress) -> int:
    data = cast(event_store.c.event_data, Text)
    columns = (
        event_store.c.position, event_store.c.tenant_id, event_store.c.execution_id, event_store.c.version,
        data.label("data"),
    )  # fmt: skip
    stale = select(*columns).where(data.not_like(f'"{sealed_prefix(key)}%')).order_by(event_store.c.position)
    again = (
        update(event_store)
        .where(event_store.c.execution_id == bindparam("execution"), event_store.c.version == bindparam("number"))
        .values(event_data=bindparam("sealed", type_=event_store.c.event_data.type))
    )
    done = after = 0
    while True:
        async with database.system_read() as connection:
            rows = (await connection.execute(stale.where(event_store.c.position > after).limit(_BATCH))).all()
        if not rows:
            return done
        changes = []
        for row in rows:
            plain = seal.opened_event(row.tenant_id, row.execution_id, row.version, row.data)
            plain = plain if isinstance(plain, bytes) else plain.encode()
            sealed = seal.event(row.tenant_id, row.execution_id, row.version, plain)
            changes.append({"execution": row.execution_id, "number": row.version, "sealed": _value(database, sealed)})
        async with database.system_write() as connection:
            await connection.execute(again, changes)
        done, after = done + len(rows), rows[-1].position
        progress("events", done)


def _value(database: Database, sealed: str) -> str:
    """PostgreSQL's `json` is given as a value and written by SQLAlchemy; SQLite's text as it is."""
    return sealed[1:-1] if database.engine == "postgresql" else sealed


async def _snapshots(database: Database, seal: FieldSeal, key: str, progress: Progress) -> int:
    table = execution_snapshots
    again = (
        update(table)
        # A newer one that was written meanwhile is sealed with the right key already.
        .where(table.c.execution_id == bindparam("execution"), table.c.version == bindparam("number"))
        .values(state=bindparam("sealed"))
    )
    done, after, prefix = 0, "", sealed_prefix(key).encode()
    while True:
        query = select(table).where(table.c.execution_id > after).order_by(table.c.execution_id).limit(_BATCH)
        async with database.system_read() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return done
        changes = []
        for row in rows:
            if not row.state.startswith(prefix):
                plain = seal.opened_state(row.tenant_id, row.execution_id, row.version, row.state)
                sealed = seal.state(row.tenant_id, row.execution_id, row.version, plain)
                changes.append({"execution": row.execution_id, "number": row.version, "sealed": sealed})
        if changes:
            async with database.system_write() as connection:
                await connection.execute(again, changes)
        done, after = done + len(changes), rows[-1].execution_id
        progress("snapshots", done)
