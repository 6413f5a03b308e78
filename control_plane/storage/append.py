"""One batch of events as rows, and the fastest durable way each engine has to write them.

This is the hot path, so it speaks to the drivers themselves: about twice as fast on SQLite as through SQLAlchemy.
Both ways check in the writing transaction that the leases are current, that a version is new, that the one before it
exists, and that it belongs to the same tenant.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentflow.errors import Bug
from agentflow.execution.events import encode, type_of
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId
from agentflow.ports import NewEvents, ShardLost, VersionConflict
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.state_snapshots import FORMAT, due

_LIFECYCLE = "execution."  # events of these types may change what the list of executions shows


class Rows(msgspec.Struct, frozen=True):
    epochs: dict[int, int]  # the leases this batch needs, by shard
    events: list[tuple[Any, ...]]  # tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch
    predecessors: list[tuple[Any, ...]]  # tenant_id, execution_id, version that must exist already
    executions: list[tuple[Any, ...]]  # the columns of `executions`, for those that this batch changes there
    snapshots: list[tuple[Any, ...]]  # the columns of `execution_snapshots`


def rows_of(
    batch: Sequence[NewEvents], epochs: Mapping[int, int], *, snapshot_every: int, seal: FieldSeal = PLAIN
) -> Rows:
    events: list[tuple[Any, ...]] = []
    predecessors: list[tuple[Any, ...]] = []
    listed: dict[ExecutionId, tuple[Any, ...]] = {}
    snapshots: dict[ExecutionId, tuple[Any, ...]] = {}
    reached: dict[ExecutionId, int] = {}
    needed: dict[int, int] = {}
    for new in batch:
        version = new.after_version
        if reached.get(new.execution, version) != version:
            raise VersionConflict(new.execution, version)
        if version > 0 and new.execution not in reached:
            predecessors.append((new.tenant, new.execution, version))
        epoch = needed.get(new.shard) or _epoch(epochs, new.shard)
        needed[new.shard] = epoch
        lifecycle = False
        for event in new.events:
            version += 1
            kind = type_of(event)
            lifecycle = lifecycle or kind.startswith(_LIFECYCLE)
            data = seal.event(new.tenant, new.execution, version, encode(event))
            events.append((new.tenant, new.execution, version, kind, data, event.at_ms, epoch))
        reached[new.execution] = version
        if lifecycle:
            listed[new.execution] = execution_row(new.execution, new.shard, new.state)
        if version // snapshot_every > new.after_version // snapshot_every:
            state = due(new, snapshot_every)
            if state is not None:
                sealed = seal.state(new.tenant, new.execution, version, state)
                snapshots[new.execution] = (new.execution, new.tenant, version, FORMAT, sealed)
    return Rows(dict(sorted(needed.items())), events, predecessors, list(listed.values()), list(snapshots.values()))


def _epoch(epochs: Mapping[int, int], shard: int) -> int:
    epoch = epochs.get(shard)
    if epoch is None:
        raise ShardLost([shard])
    return epoch


def execution_row(execution: ExecutionId, shard: int, state: ExecutionState) -> tuple[Any, ...]:
    if state.workflow is None:
        raise Bug(f"Execution {execution} has events but was never started.")
    return (
        execution,
        state.tenant,
        state.workflow.id,
        state.workflow.name,
        state.workflow.version,
        state.status.value,
        shard,
        state.trace,
        state.started_at_ms,
        state.ended_at_ms,
    )


# PostgreSQL: everything in one statement, which is its own transaction: one round trip and one flush. The leases are
# locked before the first position is drawn, which is also what lets a reader know that no lower one is still to come
# (see `stream`). The subquery in `gap` cannot become a join, and writers never scan (see `database`), so it stays one
# index probe; the lowest and highest id let the planner skip the days of a divided table that cannot hold any of them.
# COPY would be faster for large batches, but PostgreSQL refuses it where row-level security applies.
_CHECKED = """
WITH held AS MATERIALIZED (
    SELECT lease.shard FROM shard_leases AS lease
    JOIN unnest($1::smallint[], $2::integer[]) AS mine (shard, epoch)
      ON lease.shard = mine.shard AND lease.epoch = mine.epoch
    ORDER BY lease.shard FOR NO KEY UPDATE OF lease
), gap AS (
    SELECT FROM unnest($3::text[], $4::text[], $5::bigint[]) AS needed (tenant_id, execution_id, version)
    WHERE needed.tenant_id IS DISTINCT FROM (
        SELECT stored.tenant_id FROM event_store AS stored
        WHERE stored.execution_id = needed.execution_id AND stored.version = needed.version
          AND stored.execution_id >= $6::text AND stored.execution_id <= $7::text)
), allowed AS MATERIALIZED (
    SELECT WHERE (SELECT count(*) FROM held) = cardinality($1) AND NOT EXISTS (SELECT FROM gap)
)"""
_LISTED = """, listed AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_name, workflow_version, status, shard, trace_id,
                            started_at_ms, ended_at_ms)
    SELECT * FROM unnest($15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
                         $21::smallint[], $22::text[], $23::bigint[], $24::bigint[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, ended_at_ms = excluded.ended_at_ms
)"""
_KEPT = """, kept AS (
    INSERT INTO execution_snapshots (execution_id, tenant_id, version, format, state)
    SELECT * FROM unnest($25::text[], $26::text[], $27::bigint[], $28::text[], $29::bytea[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (execution_id) DO UPDATE
    SET version = excluded.version, format = excluded.format, state = excluded.state
)"""
_ADDED = """
INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch)
SELECT * FROM unnest($8::text[], $9::text[], $10::bigint[], $11::text[], $12::json[], $13::bigint[], $14::integer[])
WHERE EXISTS (SELECT FROM allowed)
"""
# Most batches neither begin nor end an execution: what they do not write should not cost them either.
_POSTGRES = (_CHECKED + _ADDED, _CHECKED + _LISTED + _ADDED, _CHECKED + _LISTED + _KEPT + _ADDED)


async def write_postgres(driver: Any, rows: Rows) -> int:
    """How many events were written: all of them, or none where a lease or a predecessor is missing."""
    needed = _columns(rows.predecessors, 3)
    values = [
        list(rows.epochs),
        list(rows.epochs.values()),
        *needed,
        min(needed[1], default=""),
        max(needed[1], default=""),
        *_columns(rows.events, 7),
    ]
    kind = 0
    if rows.executions or rows.snapshots:
        kind = 1
        values += _columns(rows.executions, 10)
    if rows.snapshots:
        kind = 2
        values += _columns(rows.snapshots, 5)
    answer: str = await driver.execute(_POSTGRES[kind], *values)
    return int(answer.rpartition(" ")[2])


def _columns(rows: list[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) or [()] * width


# SQLite: one visit to the writer's thread, and plain inserts, which are its fastest; what must exist is asked at once.
_SQLITE_LEASES = "SELECT shard, epoch FROM shard_leases"
_SQLITE_PREDECESSORS = """
SELECT count(*) FROM json_each(?) AS needed
JOIN event_store AS stored ON stored.execution_id = needed.value ->> 1 AND stored.version = needed.value ->> 2
WHERE stored.tenant_id = needed.value ->> 0
"""
_SQLITE_EVENTS = """
INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_SQLITE_EXECUTIONS = """
INSERT INTO executions (id, tenant_id, workflow_id, workflow_name, workflow_version, status, shard, trace_id,
                        started_at_ms, ended_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, ended_at_ms = excluded.ended_at_ms
"""
_SQLITE_SNAPSHOTS = """
INSERT INTO execution_snapshots (execution_id, tenant_id, version, format, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (execution_id) DO UPDATE SET version = excluded.version, format = excluded.format, state = excluded.state
"""


def write_sqlite(connection: sqlite3.Connection, rows: Rows) -> int:
    """How many events were written: all of them, or none where a lease or a predecessor is missing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _allowed(connection, rows):
            return 0
        written = connection.executemany(_SQLITE_EVENTS, rows.events).rowcount
        if rows.executions:
            connection.executemany(_SQLITE_EXECUTIONS, rows.executions)
        if rows.snapshots:
            connection.executemany(_SQLITE_SNAPSHOTS, rows.snapshots)
        connection.execute("COMMIT")
        return written
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _allowed(connection: sqlite3.Connection, rows: Rows) -> bool:
    if not rows.epochs.items() <= dict(connection.execute(_SQLITE_LEASES)).items():
        return False
    if not rows.predecessors:
        return True
    needed = msgspec.json.encode(rows.predecessors).decode()
    (found,) = connection.execute(_SQLITE_PREDECESSORS, (needed,)).fetchone()
    return bool(found == len(rows.predecessors))
