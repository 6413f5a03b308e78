"""The two roles every PostgreSQL connection of a running control plane works as: the names, and taking them on.

Neither owns a table and neither may bypass row-level security, so what a repository forgets to filter stays hidden.
Revision 0002 makes the roles and the policies; `control_plane.storage.database` takes a role on with every
connection. SQLite has no roles: there the repositories' own filter is the only wall.
"""

from typing import Any

import asyncpg

from agentflow.errors import Rejected
from agentflow.ids import TenantId

TENANT_ROLE = "agentflow_tenant"  # sees and writes rows of the one tenant its transaction names
SYSTEM_ROLE = "agentflow_system"  # the orchestrator's own work, across tenants

# Local to the transaction: when it ends, the connection belongs to nobody again and sees nothing.
ACT_FOR = "SELECT set_config('agentflow.tenant', :tenant, true)"


class RoleNotTaken(Rejected):
    code = "AF1240"

    def __init__(self, shown: str, role: str, user: str, *, exists: bool) -> None:
        reason = f"{user} may not take on the role {role}" if exists else f"the role {role} does not exist"
        cure = (
            f"Let its administrator run: GRANT {TENANT_ROLE}, {SYSTEM_ROLE} TO {user};"
            if exists
            else "Migrate it first (`af db upgrade`), with AF_DB_MIGRATE_DSN where AF_DB_DSN may not create tables."
        )
        super().__init__(f"Cannot work in {shown}: {reason}.", hint=cure)


class RolesNotMade(Rejected):
    code = "AF1241"

    def __init__(self, user: str) -> None:
        super().__init__(
            f"{user} may not create the roles {TENANT_ROLE} and {SYSTEM_ROLE}, and they are not there or not granted.",
            hint=f"Let an administrator run: CREATE ROLE {TENANT_ROLE} NOLOGIN; CREATE ROLE {SYSTEM_ROLE} NOLOGIN; "
            f"GRANT {TENANT_ROLE}, {SYSTEM_ROLE} TO {user};",
        )


class NoTenant(Rejected):
    code = "AF1242"

    def __init__(self) -> None:
        super().__init__("No tenant was named.", hint="Name the tenant whose data is meant.")


async def take_on(driver: Any, role: str, shown: str) -> None:
    """Right after connecting. Everything later on this connection has the rights of the role and no others."""
    try:
        await driver.execute(f"SET ROLE {role}")
    except asyncpg.InsufficientPrivilegeError:
        raise RoleNotTaken(shown, role, await _user(driver), exists=True) from None
    except asyncpg.InvalidParameterValueError:
        raise RoleNotTaken(shown, role, await _user(driver), exists=False) from None


async def _user(driver: Any) -> str:
    return str(await driver.fetchval("SELECT quote_ident(session_user)"))


def named(tenant: TenantId) -> dict[str, str]:
    """An empty name would be what a connection without a tenant has: refused here rather than trusted to match none."""
    if not tenant:
        raise NoTenant
    return {"tenant": tenant}
