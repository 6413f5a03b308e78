"""Budgets as rows, and what is spent of them; implements `control_plane.costs.book.BudgetStore`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, cast, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.contracts.audit import AuditEntry
from agentflow.errors import Bug
from agentflow.ids import TenantId
from control_plane.costs.budget import STATES, Budget, BudgetState, Used
from control_plane.storage.costs import TOKENS
from control_plane.storage.database import Database
from control_plane.storage.on_record import add_pending
from control_plane.storage.tables import budgets, cost_observations

_FIELDS = {("tenant_id" if field == "tenant" else field): field for field in Budget.__struct_fields__}
_spent = cost_observations.c


class SqlBudgets:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, budget: Budget) -> Budget:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        async with self._database.write(budget.tenant) as connection:
            await connection.execute(insert(budgets).on_conflict_do_nothing(), _values(budget))
        there = await self.list(budget.tenant)
        place = (budget.scope, budget.name, budget.period)
        for one in there:
            if one.id == budget.id:
                return one
        for one in there:
            if (one.scope, one.name, one.period) == place:
                return one
        raise Bug(f"The budget {budget.id} was stored but cannot be read back.")

    async def get(self, tenant: TenantId, id: str) -> Budget | None:
        query = select(budgets).where(budgets.c.tenant_id == tenant, budgets.c.id == id)
        async with self._database.read(tenant) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else _budget(row)

    async def list(self, tenant: TenantId) -> Sequence[Budget]:
        query = select(budgets).where(budgets.c.tenant_id == tenant).order_by(budgets.c.id)
        async with self._database.read(tenant) as connection:
            return [_budget(row) for row in await connection.execute(query)]

    async def replace(self, budget: Budget) -> bool:
        change = update(budgets).where(
            budgets.c.tenant_id == budget.tenant,
            budgets.c.id == budget.id,
            budgets.c.revision == budget.revision - 1,
        )
        async with self._database.write(budget.tenant) as connection:
            return (await connection.execute(change.values(_values(budget)))).rowcount == 1

    async def remove(self, tenant: TenantId, id: str) -> None:
        gone = delete(budgets).where(budgets.c.tenant_id == tenant, budgets.c.id == id)
        async with self._database.write(tenant) as connection:
            await connection.execute(gone)

    async def all(self) -> Sequence[Budget]:
        async with self._database.system_read() as connection:
            return [_budget(row) for row in await connection.execute(select(budgets))]

    async def used(self, budget: Budget, *, from_ms: int) -> Used:
        query = select(
            func.coalesce(cast(func.sum(_spent.microdollars), BigInteger), 0),
            func.coalesce(cast(func.sum(TOKENS), BigInteger), 0),
            func.count() - func.count(_spent.microdollars),
        ).where(_spent.tenant_id == budget.tenant, _spent.at_ms >= from_ms)
        if budget.scope != "tenant":
            query = query.where(_spent[budget.scope] == budget.name)
        async with self._database.read(budget.tenant) as connection:
            return Used(*(await connection.execute(query)).one())

    async def tell(self, budget: Budget, state: BudgetState, of_ms: int, entry: AuditEntry) -> bool:
        told = update(budgets).where(
            budgets.c.tenant_id == budget.tenant,
            budgets.c.id == budget.id,
            budgets.c.revision == budget.revision,
            (budgets.c.told_of_ms != of_ms) | budgets.c.told.in_(STATES[: STATES.index(state)]),
        )
        async with self._database.system_write() as connection:
            if (await connection.execute(told.values(told=state, told_of_ms=of_ms))).rowcount == 0:
                return False
            await add_pending(connection, [entry])
        return True


def _values(budget: Budget) -> dict[str, Any]:
    return {column: getattr(budget, field) for column, field in _FIELDS.items()}


def _budget(row: Row[*tuple[Any, ...]]) -> Budget:
    return Budget(**{field: getattr(row, column) for column, field in _FIELDS.items()})
