"""One batch of events as rows, and the fastest durable way each engine has to write them.

This is the hot path, so it speaks to the drivers themselves: about twice as fast on SQLite as through SQLAlchemy.
Both ways check in the writing transaction that the leases are current, that a version is new, that the one before it
exists, and that it belongs to the same tenant.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, get_args

import msgspec

from agentflow.errors import Bug
from agentflow.execution.events import Event, LifecycleEvent, encode, tag_of
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import NewEvents, ShardLost, VersionConflict
from control_plane.registry.tasks import TASK_EVENTS, TaskLine, task_changes
from control_plane.storage.sealing import PLAIN, FieldSeal
from control_plane.storage.state_snapshots import FORMAT, due
from control_plane.storage.written import Reached, Written


class Rows(msgspec.Struct, frozen=True):
    epochs: dict[int, int]  # the leases this batch needs, by shard
    events: list[tuple[Any, ...]]  # tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch
    predecessors: list[tuple[Any, ...]]  # tenant_id, execution_id, version that must exist already
    executions: list[tuple[Any, ...]]  # the columns of `executions`, for those that this batch changes there
    snapshots: list[tuple[Any, ...]]  # the columns of `execution_snapshots`
    tasks: list[tuple[Any, ...]]  # the columns of `human_tasks`, of those that this batch opens
    task_ends: list[tuple[Any, ...]]  # execution_id, path, status, ended_at_ms
    costs: list[tuple[Any, ...]]  # the columns of `cost_observations`
    audits: list[tuple[Any, ...]]  # the columns of `audit_pending`
    reached: dict[ExecutionId, Reached]  # where the executions that stay open stand afterwards
    ended: list[ExecutionId]
    known: Written  # what was taken for granted: holds for the connection that committed it

    def learned(self) -> None:
        """These rows are committed, through the connection that `known` is of."""
        self.known.learn(self.reached, self.ended)


# The stored name of each type of event, and whether it may change a list: of executions, of tasks for people.
_KINDS = {
    type_: (tag_of(type_), issubclass(type_, LifecycleEvent), issubclass(type_, TASK_EVENTS))
    for type_ in get_args(Event)
}


def rows_of(
    batch: Sequence[NewEvents],
    epochs: Mapping[int, int],
    *,
    snapshot_every: int,
    seal: FieldSeal = PLAIN,
    known: Written | None = None,
) -> Rows:
    """Everything about a batch that needs no database. Each event there is comes through here: keep it cheap."""
    rows = Rows({}, [], [], [], [], [], [], [], [], {}, [], known or Written())
    asked: list[NewEvents] = []
    changed: dict[ExecutionId, NewEvents] = {}
    with_tasks: dict[ExecutionId, TenantId] = {}
    snapshots: dict[ExecutionId, tuple[Any, ...]] = {}
    needed, reached, granted, add = rows.epochs, rows.reached, rows.known.reached.get, rows.events.append
    sealed = None if seal.ring is None else seal.event
    for new in batch:
        execution, tenant, version = new.execution, new.tenant, new.after_version
        epoch = needed.get(new.shard)
        if epoch is None:
            epoch = needed[new.shard] = _epoch(epochs, new.shard)
        before = (tenant, version, epoch)
        if execution in reached:
            if reached[execution] != before:
                raise VersionConflict(execution, version)
        elif version > 0 and granted(execution) != before:
            rows.predecessors.append((tenant, execution, version))
            asked.append(new)
        for event in new.events:
            version += 1
            kind, lifecycle, task = _KINDS[type(event)]
            if lifecycle:
                changed[execution] = new
            elif task:
                with_tasks[execution] = new.tenant
            data = encode(event)
            text = data.decode() if sealed is None else sealed(tenant, execution, version, data)
            add((tenant, execution, version, kind, text, event.at_ms, epoch))
        if new.costs:
            rows.costs.extend(_cost_rows(new))
        if new.audits:
            rows.audits.extend((entry.id, entry.tenant, entry.record) for entry in new.audits)
        reached[execution] = (tenant, version, epoch)
        if version // snapshot_every > new.after_version // snapshot_every:
            state = due(new, snapshot_every)
            if state is not None:
                data = seal.state(tenant, execution, version, state)
                snapshots[execution] = (execution, tenant, version, FORMAT, data)
    for execution, new in changed.items():
        rows.executions.append(execution_row(execution, new.shard, new.state))
        if new.open_tasks:
            with_tasks[execution] = new.tenant
    if with_tasks:
        _add_tasks(rows, batch, with_tasks)
    # What is known to be open stays so without an event of its lifecycle; its state need not be looked at.
    rows.ended.extend(new.execution for new in (*asked, *changed.values()) if new.state.ended_at_ms is not None)
    rows.snapshots.extend(snapshots.values())
    return rows


def _add_tasks(rows: Rows, batch: Sequence[NewEvents], wanted: Mapping[ExecutionId, TenantId]) -> None:
    """An execution may come twice in a batch, and what it opened first may end with the second."""
    for execution, tenant in wanted.items():
        mine = [new for new in batch if new.execution == execution]
        numbered = ((new.after_version + at, event) for new in mine for at, event in enumerate(new.events, start=1))
        opened, ended = task_changes(numbered, [path for new in mine for path in new.open_tasks])
        rows.tasks.extend(task_row(execution, tenant, line) for line in opened)
        rows.task_ends.extend((execution, end.path, end.status, end.ended_at_ms) for end in ended)


def _cost_rows(new: NewEvents) -> Iterator[tuple[Any, ...]]:
    """Named after the attempt and its place in it, so that a result that is told twice is counted once."""
    workflow = new.state.workflow.name if new.state.workflow is not None else ""
    for cost in new.costs:
        for number, used in enumerate(cost.usage):
            yield (
                new.execution, f"{cost.path}#{cost.attempt}/{number}", new.tenant, workflow, cost.path, cost.attempt,
                used.agent, used.resource, used.microdollars, used.input, used.cache_read, used.cache_write,
                used.output, used.reasoning, used.audio, cost.at_ms,
            )  # fmt: skip


def task_row(execution: ExecutionId, tenant: TenantId, line: TaskLine) -> tuple[Any, ...]:
    return (execution, line.path, tenant, line.version, line.status, line.opened_at_ms, line.ended_at_ms)


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
_HELD = """
WITH held AS MATERIALIZED (
    SELECT lease.shard FROM shard_leases AS lease
    JOIN unnest(?::smallint[], ?::integer[]) AS mine (shard, epoch)
      ON lease.shard = mine.shard AND lease.epoch = mine.epoch
    ORDER BY lease.shard FOR NO KEY UPDATE OF lease
)"""
_GAP = """, gap AS (
    SELECT FROM unnest(?::text[], ?::text[], ?::bigint[]) AS needed (tenant_id, execution_id, version)
    WHERE needed.tenant_id IS DISTINCT FROM (
        SELECT stored.tenant_id FROM event_store AS stored
        WHERE stored.execution_id = needed.execution_id AND stored.version = needed.version
          AND stored.execution_id >= ?::text AND stored.execution_id <= ?::text)
)"""
_ALLOWED = """, allowed AS MATERIALIZED (
    SELECT WHERE (SELECT count(*) FROM held) = ?::bigint{no_gap}
)"""
_LISTED = """, listed AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_name, workflow_version, status, shard, trace_id,
                            started_at_ms, ended_at_ms)
    SELECT * FROM unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::text[],
                         ?::smallint[], ?::text[], ?::bigint[], ?::bigint[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, ended_at_ms = excluded.ended_at_ms,
        workflow_id = excluded.workflow_id, workflow_version = excluded.workflow_version
)"""
_KEPT = """, kept AS (
    INSERT INTO execution_snapshots (execution_id, tenant_id, version, format, state)
    SELECT * FROM unnest(?::text[], ?::text[], ?::bigint[], ?::text[], ?::bytea[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (execution_id) DO UPDATE
    SET version = excluded.version, format = excluded.format, state = excluded.state
)"""
_TASKS = """, tasks AS (
    INSERT INTO human_tasks (execution_id, path, tenant_id, version, status, opened_at_ms, ended_at_ms)
    SELECT * FROM unnest(?::text[], ?::text[], ?::text[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[])
    WHERE EXISTS (SELECT FROM allowed)
)"""
_TASK_ENDS = """, task_ends AS (
    UPDATE human_tasks AS task SET status = ended.status, ended_at_ms = ended.ended_at_ms
    FROM unnest(?::text[], ?::text[], ?::text[], ?::bigint[]) AS ended (execution_id, path, status, ended_at_ms)
    WHERE task.execution_id = ended.execution_id AND task.path = ended.path AND EXISTS (SELECT FROM allowed)
)"""
_SPENT = """, spent AS (
    INSERT INTO cost_observations (execution_id, id, tenant_id, workflow, path, attempt, agent, resource, microdollars,
                                   tokens_input, tokens_cache_read, tokens_cache_write, tokens_output,
                                   tokens_reasoning, tokens_audio, at_ms)
    SELECT * FROM unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::integer[], ?::text[], ?::text[],
                         ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[],
                         ?::bigint[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (execution_id, id) DO NOTHING
)"""
_NOTED = """, noted AS (
    INSERT INTO audit_pending (id, tenant_id, record)
    SELECT * FROM unnest(?::text[], ?::text[], ?::text[])
    WHERE EXISTS (SELECT FROM allowed)
    ON CONFLICT (id) DO NOTHING
)"""
_ADDED = """
INSERT INTO event_store (tenant_id, execution_id, version, event_type, event_data, created_at_ms, epoch)
SELECT * FROM unnest(?::text[], ?::text[], ?::bigint[], ?::text[], ?::json[], ?::bigint[], ?::integer[])
WHERE EXISTS (SELECT FROM allowed)
"""


@cache
def _statement(gap: bool, listed: bool, kept: bool, tasks: bool, task_ends: bool, spent: bool, noted: bool) -> str:
    """What a batch does not write, or need not ask, should not cost it either."""
    allowed = _ALLOWED.format(no_gap=" AND NOT EXISTS (SELECT FROM gap)" if gap else "")
    asked = (_HELD, _GAP * gap, allowed)
    written = (
        _LISTED * listed,
        _KEPT * kept,
        _TASKS * tasks,
        _TASK_ENDS * task_ends,
        _SPENT * spent,
        _NOTED * noted,
        _ADDED,
    )
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", "".join(asked + written))


async def write_postgres(driver: Any, rows: Rows) -> bool:
    """False, and nothing is written, where a lease or a predecessor is missing."""
    values: list[Any] = [list(rows.epochs), list(rows.epochs.values())]
    if rows.predecessors:
        needed = _columns(rows.predecessors)
        values += [*needed, min(needed[1]), max(needed[1])]
    values.append(len(rows.epochs))
    others = (rows.executions, rows.snapshots, rows.tasks, rows.task_ends, rows.costs, rows.audits)
    for table in (*others, rows.events):
        values += _columns(table)
    statement = _statement(bool(rows.predecessors), *map(bool, others))
    answer: str = await driver.execute(statement, *values)
    if answer.endswith(" 0"):
        return False
    rows.learned()
    return True


def _columns(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True))


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
ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, ended_at_ms = excluded.ended_at_ms,
        workflow_id = excluded.workflow_id, workflow_version = excluded.workflow_version
"""
_SQLITE_SNAPSHOTS = """
INSERT INTO execution_snapshots (execution_id, tenant_id, version, format, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (execution_id) DO UPDATE SET version = excluded.version, format = excluded.format, state = excluded.state
"""
_SQLITE_TASKS = """
INSERT INTO human_tasks (execution_id, path, tenant_id, version, status, opened_at_ms, ended_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_SQLITE_TASK_ENDS = """
UPDATE human_tasks SET status = ?3, ended_at_ms = ?4 WHERE execution_id = ?1 AND path = ?2
"""
_SQLITE_COSTS = """
INSERT OR IGNORE INTO cost_observations (execution_id, id, tenant_id, workflow, path, attempt, agent, resource,
    microdollars, tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, tokens_reasoning, tokens_audio,
    at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SQLITE_AUDITS = "INSERT OR IGNORE INTO audit_pending (id, tenant_id, record) VALUES (?, ?, ?)"


def write_sqlite(connection: sqlite3.Connection, rows: Rows) -> bool:
    """False, and nothing is written, where a lease or a predecessor is missing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _allowed(connection, rows):
            return False
        connection.executemany(_SQLITE_EVENTS, rows.events)
        if rows.executions:
            connection.executemany(_SQLITE_EXECUTIONS, rows.executions)
        if rows.snapshots:
            connection.executemany(_SQLITE_SNAPSHOTS, rows.snapshots)
        if rows.tasks:
            connection.executemany(_SQLITE_TASKS, rows.tasks)
        if rows.task_ends:
            connection.executemany(_SQLITE_TASK_ENDS, rows.task_ends)
        if rows.costs:
            connection.executemany(_SQLITE_COSTS, rows.costs)
        if rows.audits:
            connection.executemany(_SQLITE_AUDITS, rows.audits)
        connection.execute("COMMIT")
        rows.learned()
        return True
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _leases(connection: sqlite3.Connection, known: Written) -> dict[int, int]:
    """As they are in this transaction; read anew only when another connection has changed anything since."""
    (changes,) = connection.execute("PRAGMA data_version").fetchone()
    if known.leases is None or known.leases[0] != changes:
        known.leases = changes, dict(connection.execute(_SQLITE_LEASES))
    return known.leases[1]


def _allowed(connection: sqlite3.Connection, rows: Rows) -> bool:
    if not rows.epochs.items() <= _leases(connection, rows.known).items():
        return False
    if not rows.predecessors:
        return True
    needed = msgspec.json.encode(rows.predecessors).decode()
    (found,) = connection.execute(_SQLITE_PREDECESSORS, (needed,)).fetchone()
    return bool(found == len(rows.predecessors))
