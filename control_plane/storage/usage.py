"""How much is stored: bytes and rows for each tenant, workflow and kind, and what the disk really holds.

What a row takes is counted by its values; the engine's own overhead (indexes, free pages) is in the totals only.
"""

from collections import defaultdict
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, LargeBinary, Select, Table, Text, cast, func, literal, select, text

from agentflow.contracts.workspace import execution_of
from agentflow.ports import ArtifactStore
from control_plane.storage.database import Database
from control_plane.storage.tables import executions, metadata, snapshots, storage_use

_FIXED_BYTES = 8  # of a number

# How much is stored is itself not counted: it would change by being counted.
COUNTED = [table for table in metadata.sorted_tables if "tenant_id" in table.c and table is not storage_use]


class Use(msgspec.Struct, frozen=True, order=True):
    tenant: str
    workflow: str  # none for what belongs to no execution
    kind: str
    bytes: int
    items: int


class Report(msgspec.Struct, frozen=True):
    database_bytes: int  # as the engine holds it, indexes and free pages included
    artifact_bytes: int
    uses: tuple[Use, ...]


async def storage_report(database: Database, artifacts: ArtifactStore) -> Report:
    found: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    async with database.system_read() as connection:
        for table in COUNTED:
            for tenant, workflow, size, rows in await connection.execute(sizes(table)):
                total = found[tenant, workflow or "", str(table.info["retention"])]
                total[0] += int(size or 0)
                total[1] += rows
        workflows: dict[str, str] = {}
        for table in (executions, snapshots):  # what may own artifacts
            named = await connection.execute(select(table.c.id, table.c.workflow_name))
            workflows |= {row.id: row.workflow_name for row in named}
        on_disk = await connection.scalar(text(_DISK[database.engine]))
    kept = 0
    for use in await artifacts.shelves():
        total = found[use.shelf.tenant, workflows.get(execution_of(use.shelf.owner), ""), "artifact"]
        total[0] += use.bytes
        total[1] += use.artifacts
        kept += use.bytes
    uses = sorted(Use(*key, bytes=size, items=items) for key, (size, items) in found.items() if items)
    return Report(int(on_disk or 0), kept, tuple(uses))


_DISK = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = current_schema()::regnamespace",
}


def sizes(table: Table) -> Select[Any]:
    """Bytes and rows by tenant and workflow. What belongs to an execution is counted under its workflow."""
    size = row_bytes(table)
    if table is executions or table is snapshots:
        return select(table.c.tenant_id, table.c.workflow_name, func.sum(size), func.count()).group_by(
            table.c.tenant_id, table.c.workflow_name
        )
    if "execution_id" in table.c:
        joined = table.outerjoin(executions, executions.c.id == table.c.execution_id)
        return (
            select(table.c.tenant_id, executions.c.workflow_name, func.sum(size), func.count())
            .select_from(joined)
            .group_by(table.c.tenant_id, executions.c.workflow_name)
        )
    return select(table.c.tenant_id, literal(""), func.sum(size), func.count()).group_by(table.c.tenant_id)


def row_bytes(table: Table) -> ColumnElement[int]:
    size: ColumnElement[int] = literal(0)
    for column in table.columns:
        if isinstance(column.type, LargeBinary):
            size = size + func.coalesce(func.length(column), 0)
        elif column.type.python_type is str or "JSON" in type(column.type).__name__.upper():
            size = size + func.coalesce(func.length(cast(column, Text)), 0)
        else:
            size = size + _FIXED_BYTES
    return size
