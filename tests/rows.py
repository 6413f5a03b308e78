"""A row for any table, made from its columns alone: so a test over every table also has the ones that come later."""

from typing import Any

from sqlalchemy import BigInteger, Integer, LargeBinary, SmallInteger, Table


def tenant_column(table: Table) -> str:
    return "id" if table.name == "tenants" else "tenant_id"


def any_row(table: Table, tenant: str) -> dict[str, Any]:
    """Any row that the table accepts, of this tenant. Every number is 1, every id says whose it is."""
    values: dict[str, Any] = {}
    for column in table.columns:
        if column.identity is not None:
            continue
        if isinstance(column.type, BigInteger | Integer | SmallInteger):
            values[column.name] = 1
        elif isinstance(column.type, LargeBinary):
            values[column.name] = b"x"
        elif column.type.python_type is dict:
            values[column.name] = {}
        else:
            values[column.name] = "{}" if column.name in ("event_data", "record") else f"{column.name} of {tenant}"
    values[tenant_column(table)] = tenant
    if table.name == "budgets":
        values["period"] = "day"  # the purge asks since when it counts
    # Tables come sorted and an id of a kind reads the same everywhere, so foreign keys hold.
    named = {"users": "user_id", "rbac_roles": "role_id", "executions": "execution_id"}
    if table.name in named:
        values["id"] = f"{named[table.name]} of {tenant}"
    return values
