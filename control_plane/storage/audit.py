"""The audit trail in the database: records that wait, the chain they are moved into, and how it is read.

Implements `control_plane.audit`'s `PendingStore`, `ChainStore` and `Links`. What a tenant may read goes through its own
connection; adding to a chain is the system's work.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Text, and_, any_, delete, func, insert, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.clock import Clock, parse_rfc3339
from agentflow.contracts.audit import GENESIS, AuditEntry, Link, link_hash
from agentflow.ids import TenantId, decode_ulid, encode_ulid
from agentflow.limits import AUDIT_CLOCKS_APART_MS, LIST_COUNT_MAX
from control_plane.audit.log import AuditFilter
from control_plane.storage.database import Database
from control_plane.storage.on_record import add_pending
from control_plane.storage.tables import audit_heads, audit_pending, audits

_KIND = "aud_"
_CHANCE_BITS = 80


class SqlAudit:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        async with self._database.system_write() as connection:
            await add_pending(connection, entries)

    async def waiting(self) -> Sequence[TenantId]:
        async with self._database.system_read() as connection:
            found = await connection.scalars(select(audit_pending.c.tenant_id).distinct())
            return [TenantId(tenant) for tenant in found]

    async def chain(self, tenant: TenantId, *, limit: int) -> int:
        """The head's row is held to the end: nobody else adds to this chain meanwhile, or from where it was."""
        async with self._database.system_write() as connection:
            head = await self._held(connection, tenant)
            if head is None:
                return 0
            mine = audit_pending.c.tenant_id == tenant
            query = select(audit_pending.c.id, audit_pending.c.record).where(mine).order_by(audit_pending.c.id)
            found = (await connection.execute(query.limit(limit))).all()
            if not found:
                return 0
            names = [row.id for row in found]
            known = await self._chained_before(connection, tenant, names)
            links = self._links(tenant, head, [(row.id, row.record) for row in found if row.id not in known])
            if links:
                await connection.execute(insert(audits), links)
                last = links[-1]
                await connection.execute(
                    update(audit_heads)
                    .where(audit_heads.c.tenant_id == tenant, audit_heads.c.seq == head.seq)
                    .values(seq=last["seq"], hash=last["hash"], last_id=last["id"])
                )
            await connection.execute(delete(audit_pending).where(mine, self._among(audit_pending.c.id, names)))
        return len(found)

    async def _held(self, connection: AsyncConnection, tenant: TenantId) -> Any:
        """The head of the chain, locked; None while another control plane has it."""
        insert_: Any = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        begun = {"tenant_id": tenant, "seq": 0, "hash": GENESIS, "last_id": _KIND}
        await connection.execute(insert_(audit_heads).on_conflict_do_nothing(index_elements=["tenant_id"]), begun)
        query = select(audit_heads).where(audit_heads.c.tenant_id == tenant).with_for_update(skip_locked=True)
        return (await connection.execute(query)).one_or_none()

    async def _chained_before(self, connection: AsyncConnection, tenant: TenantId, names: list[str]) -> set[str]:
        """A record may be told twice. Its link is not older than itself, whatever the clocks."""
        oldest_ms = min(self._clock.now_ms(), *(_made_at_ms(name) for name in names))
        since = _KIND + encode_ulid(max(0, oldest_ms - AUDIT_CLOCKS_APART_MS) << _CHANCE_BITS)
        query = select(audits.c.record_id).where(
            audits.c.tenant_id == tenant, self._among(audits.c.record_id, names), audits.c.id >= since
        )
        return set(await connection.scalars(query))

    def _among(self, column: ColumnElement[str], names: list[str]) -> ColumnElement[bool]:
        """To PostgreSQL as one value: one parameter for each would be another statement to prepare for each count."""
        if self._database.engine == "postgresql":
            return column == any_(literal(names, postgresql.ARRAY(Text)))
        return column.in_(names)

    def _links(self, tenant: TenantId, head: Any, found: list[tuple[str, str]]) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = []
        seq, prev_hash = head.seq, head.hash
        place = max(
            self._clock.now_ms() << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS - 1),
            decode_ulid(head.last_id.removeprefix(_KIND)) + 1 if head.seq else 0,
        )
        for name, text in found:
            seq += 1
            hashed = link_hash(prev_hash, text.encode(), seq)
            record = msgspec.json.decode(text)
            links.append(
                {
                    "id": _KIND + encode_ulid(place),
                    "tenant_id": tenant,
                    "seq": seq,
                    "record_id": name,
                    "actor_type": record["actor"]["kind"],
                    "actor_id": record["actor"]["id"],
                    "action": record["action"],
                    "resource_type": record["resource"]["type"],
                    "resource_id": record["resource"]["id"],
                    "outcome": record["outcome"],
                    "record": text,
                    "prev_hash": prev_hash,
                    "hash": hashed,
                    "at_ms": parse_rfc3339(record["at"]),
                }
            )
            prev_hash, place = hashed, place + 1
        return links

    async def page(
        self, tenant: TenantId, wanted: AuditFilter, *, limit: int, after: int | None, newest_first: bool
    ) -> Sequence[Link]:
        query = select(audits.c.seq, audits.c.prev_hash, audits.c.hash, audits.c.record).where(_fits(tenant, wanted))
        if after is not None:
            query = query.where(audits.c.seq < after if newest_first else audits.c.seq > after)
        query = query.order_by(audits.c.seq.desc() if newest_first else audits.c.seq).limit(limit)
        async with self._database.read(tenant) as connection:
            rows = (await connection.execute(query)).all()
        return [Link(row.seq, row.prev_hash.hex(), row.hash.hex(), msgspec.json.decode(row.record)) for row in rows]

    async def count(self, tenant: TenantId, wanted: AuditFilter) -> int:
        some = select(audits.c.id).where(_fits(tenant, wanted)).limit(LIST_COUNT_MAX).subquery()
        async with self._database.read(tenant) as connection:
            return await connection.scalar(select(func.count()).select_from(some)) or 0

    async def head(self, tenant: TenantId) -> tuple[int, str]:
        query = select(audit_heads.c.seq, audit_heads.c.hash).where(audit_heads.c.tenant_id == tenant)
        async with self._database.read(tenant) as connection:
            found = (await connection.execute(query)).one_or_none()
        return (0, GENESIS.hex()) if found is None else (found.seq, found.hash.hex())


def _made_at_ms(name: str) -> int:
    return decode_ulid(name.removeprefix(_KIND)) >> _CHANCE_BITS


def _fits(tenant: TenantId, wanted: AuditFilter) -> ColumnElement[bool]:
    fits: list[ColumnElement[bool]] = [audits.c.tenant_id == tenant]
    for column, value in (
        (audits.c.actor_id, wanted.actor),
        (audits.c.action, wanted.action),
        (audits.c.resource_type, wanted.resource_type),
        (audits.c.resource_id, wanted.resource),
    ):
        if value is not None:
            fits.append(column == value)
    if wanted.outcomes is not None:
        fits.append(audits.c.outcome.in_(wanted.outcomes))
    if wanted.since_ms is not None:
        earliest = max(0, wanted.since_ms - AUDIT_CLOCKS_APART_MS) << _CHANCE_BITS
        fits += [audits.c.at_ms >= wanted.since_ms, audits.c.id >= _KIND + encode_ulid(earliest)]
    if wanted.until_ms is not None:
        fits.append(audits.c.at_ms < wanted.until_ms)
    return and_(*fits)
