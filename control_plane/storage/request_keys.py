"""Which request made what, by the key its sender gave it; implements `control_plane.service.RequestKeys`."""

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.clock import Clock
from agentflow.errors import Bug
from agentflow.ids import TenantId
from control_plane.service import Reservation
from control_plane.storage.database import Database
from control_plane.storage.tables import idempotency_keys


class SqlRequestKeys:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def reserve(self, tenant: TenantId, operation: str, key: str, wanted: Reservation) -> Reservation:
        row = {
            "tenant_id": tenant,
            "operation": operation,
            "key": key,
            "body_hash": wanted.body_hash,
            "resource_id": wanted.resource,
            "created_at_ms": self._clock.now_ms(),
        }
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        unless_taken = insert(idempotency_keys).on_conflict_do_nothing(index_elements=["tenant_id", "operation", "key"])
        stored = select(idempotency_keys.c.body_hash, idempotency_keys.c.resource_id).where(
            idempotency_keys.c.tenant_id == tenant,
            idempotency_keys.c.operation == operation,
            idempotency_keys.c.key == key,
        )
        async with self._database.write(tenant, on_record=False) as connection:
            await connection.execute(unless_taken, row)
            found = (await connection.execute(stored)).one_or_none()
        if found is None:
            raise Bug(f"The key of a request for {wanted.resource} was stored but cannot be read back.")
        return Reservation(found.body_hash, found.resource_id)
