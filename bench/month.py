"""A month of history for measurements, written straight into PostgreSQL: what the store would take minutes for.

One run is made by the store's own code; the server then multiplies it, with other ids and moments. So the rows are what
the store would have written, and `load` reads them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import asyncpg
from sqlalchemy import JSON, Column, String, Table
from sqlalchemy.dialects import postgresql

from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionStarted,
    StepScheduled,
    TaskOpened,
    WorkflowRef,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkflowId, encode_ulid
from agentflow.ports import NewEvents
from control_plane.storage.append import rows_of
from control_plane.storage.database import Database
from control_plane.storage.days import make_days
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade
from control_plane.storage.tables import event_store, executions, human_tasks

DAYS = 30
DAY_MS = 24 * 3600 * 1000
PER_RUN = 20
SHARDS = 4
TENANT = TenantId("bench")

_AT_ONCE = 2_500  # runs multiplied by one statement
_MODEL_MS = 1_700_000_000_123
_DIALECT = postgresql.dialect()
_PARKED_FROM = 10**15  # so that ids of parked runs are no others'

Make = Callable[[int, int], NewEvents]


class Month:
    """Which runs there are, evenly spread: `ended` of them of 20 events each, and `parked` that wait for a person."""

    def __init__(self, now_ms: int, *, events: int, parked: int = 0) -> None:
        self.now_ms = now_ms
        self.ended = events // PER_RUN
        self.parked = parked

    def ended_run(self, number: int) -> NewEvents:
        return finished(number, self._moment(number, self.ended))

    def parked_run(self, number: int) -> NewEvents:
        return waiting(number, self._moment(number, self.parked))

    def _moment(self, number: int, of: int) -> int:
        return self.now_ms - DAYS * DAY_MS * (of - number) // of

    async def write(self, db: Database, dsn: str) -> dict[int, int]:
        """Into a new database; the epochs of the leases to go on with. Settled: vacuumed and checkpointed."""
        await upgrade(db)
        await make_days(db, self.now_ms - DAYS * DAY_MS, ahead=DAYS + 1)
        epochs = dict(await SqlShardLeases(db).acquire(range(SHARDS), "bench", lease_s=24 * 3600))
        connection = await asyncpg.connect(dsn)
        try:
            for first in range(0, self.ended, _AT_ONCE):
                numbers = range(first, min(first + _AT_ONCE, self.ended))
                await _multiply(connection, finished, numbers, [self._moment(each, self.ended) for each in numbers])
            for shard in range(SHARDS):
                numbers = range(shard, self.parked, SHARDS)
                await _multiply(connection, waiting, numbers, [self._moment(each, self.parked) for each in numbers])
            for statement in ("VACUUM (ANALYZE)", "CHECKPOINT"):
                await connection.execute(statement)
        finally:
            await connection.close()
        return epochs


def finished(number: int, at_ms: int, *, length: int = PER_RUN) -> NewEvents:
    """A run of so many events that ended as soon as it had begun."""
    execution = _id(number, at_ms)
    workflow = WorkflowRef(WorkflowId("wf_1"), "bench", "1.0.0", "d1")
    return _run(
        number,
        ExecutionStarted(at_ms, execution, TENANT, workflow, {"n": 1}, TraceId("t")),
        *(
            StepScheduled(at_ms, StepPath(f"s{step}"), "s", 1, AgentName("x"), {"text": "x" * 100}, 500)
            for step in range(length - 2)
        ),
        ExecutionCompleted(at_ms, {"answer": 42}),
    )


def waiting(number: int, at_ms: int) -> NewEvents:
    """One that waits for a person ever since it began."""
    execution = _id(_PARKED_FROM + number, at_ms)
    workflow = WorkflowRef(WorkflowId("wf_2"), "parked", "1.0.0", "d1")
    return _run(
        number,
        ExecutionStarted(at_ms, execution, TENANT, workflow, {"n": 1}, TraceId("t")),
        TaskOpened(at_ms, StepPath("approve"), {"title": "May I come in?"}),
    )


def _run(number: int, started: ExecutionStarted, *others: Event) -> NewEvents:
    events = (started, *others)
    state = reduce(evolve, events, ExecutionState())
    return NewEvents(started.execution, TENANT, number % SHARDS, 0, events, state)


def _id(number: int, at_ms: int) -> ExecutionId:
    return ExecutionId(f"exec_{encode_ulid((at_ms << 80) | number)}")


async def _multiply(connection: Any, make: Make, numbers: Sequence[int], moments: Sequence[int]) -> None:
    """Write the rows of all these runs; those of the first stand model."""
    if not numbers:
        return
    model = make(numbers[0], _MODEL_MS)
    rows = rows_of([model], {model.shard: 1}, snapshot_every=10**9)
    ids = [make(number, at_ms).execution for number, at_ms in zip(numbers, moments, strict=True)]
    written = ((executions, rows.executions), (event_store, rows.events), (human_tasks, rows.tasks))
    async with connection.transaction():
        for table, models in written:
            if models:
                columns = [column for column in table.columns if not column.identity]
                statement = _multiplying(table, columns, model.execution)
                await connection.execute(statement, ids, moments, *zip(*models, strict=True))


def _multiplying(table: Table, columns: Sequence[Column[Any]], model: str) -> str:
    """The model's id and moment become those of each run, wherever they stand; everything else stays."""
    values, arrays = [], []
    for number, column in enumerate(columns, start=3):
        kind = column.type.dialect_impl(_DIALECT)
        written = isinstance(kind, String | JSON)
        arrays.append(f"${number}::{'text' if written else kind.compile(_DIALECT)}[]")
        if written:
            named = f"replace(replace(model.{column.name}, '{model}', run.id), '{_MODEL_MS}', run.at_ms::text)"
            values.append(f"{named}::json" if isinstance(kind, JSON) else named)
        elif column.name.endswith("_at_ms"):
            values.append(f"model.{column.name} - {_MODEL_MS} + run.at_ms")
        else:
            values.append(f"model.{column.name}")
    names = ", ".join(column.name for column in columns)
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {', '.join(values)}"
        " FROM unnest($1::text[], $2::bigint[]) AS run (id, at_ms),"
        f" unnest({', '.join(arrays)}) WITH ORDINALITY AS model ({names}, place) ORDER BY run.id, model.place"
    )
