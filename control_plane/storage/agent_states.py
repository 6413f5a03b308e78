"""Agents' states in the database; implements `control_plane.registry.agent_states.AgentStateStore`."""

import hashlib

from sqlalchemy import ColumnElement, delete, func, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.contracts.agent_state import StateRef
from agentflow.ids import WorkerId
from control_plane.registry.agent_states import StoredState
from control_plane.storage.database import Database
from control_plane.storage.tables import agent_states

_VERSIONS_KEPT = 8  # enough that no writer can be slower than all of them and find its version free again


class SqlAgentStates:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = postgresql.insert if database.engine == "postgresql" else sqlite.insert

    async def latest(self, ref: StateRef) -> StoredState | None:
        query = (
            select(
                agent_states.c.version,
                agent_states.c.worker_id,
                agent_states.c.state_data,
                agent_states.c.checkpoint_type,
                agent_states.c.created_at_ms,
            )
            .where(*_of(ref))
            .order_by(agent_states.c.version.desc())
            .limit(1)
        )
        async with self._database.system_read() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        worker = None if row.worker_id is None else WorkerId(row.worker_id)
        return StoredState(row.version, worker, bytes(row.state_data), row.checkpoint_type, row.created_at_ms)

    async def append(self, ref: StateRef, state: StoredState) -> bool:
        newest = select(func.coalesce(func.max(agent_states.c.version), 0)).where(*_of(ref)).scalar_subquery()
        values = {
            "tenant_id": ref.tenant,
            "agent_id": ref.agent,
            "instance": ref.instance,
            "version": state.version,
            "checkpoint_type": state.checkpoint_type,
            "worker_id": state.worker,
            "state_data": state.data,
            "metadata": {"bytes": len(state.data), "sha256": hashlib.sha256(state.data).hexdigest()},
            "created_at_ms": state.saved_at_ms,
        }
        columns = [agent_states.c[name] for name in values]
        row = select(
            *(literal(value, column.type) for value, column in zip(values.values(), columns, strict=True))
        ).where(newest == state.version - 1)
        # Two that both see the same newest version meet at the primary key: one of them writes nothing.
        follow = self._insert(agent_states).from_select(columns, row).on_conflict_do_nothing()
        forget = delete(agent_states).where(*_of(ref), agent_states.c.version <= state.version - _VERSIONS_KEPT)
        async with self._database.system_write() as connection:
            written = (await connection.execute(follow)).rowcount == 1
            if written and state.version > _VERSIONS_KEPT:
                await connection.execute(forget)
        return written


def _of(ref: StateRef) -> tuple[ColumnElement[bool], ...]:
    return (
        agent_states.c.tenant_id == ref.tenant,
        agent_states.c.agent_id == ref.agent,
        agent_states.c.instance == ref.instance,
    )
