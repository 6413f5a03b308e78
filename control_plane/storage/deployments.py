"""Deployments as rows; implements `control_plane.deploying.DeploymentStore`."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from agentflow.ids import TenantId
from control_plane.deploying import Deployment
from control_plane.storage.database import Database
from control_plane.storage.tables import deployments


class SqlDeployments:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, deployment: Deployment) -> None:
        insert = postgresql.insert if self._database.engine == "postgresql" else sqlite.insert
        once = insert(deployments).on_conflict_do_nothing(index_elements=["tenant_id", "workflow_id"])
        row = msgspec.to_builtins(deployment)
        row |= {"tenant_id": row.pop("tenant"), "deployed_by": row.pop("by")}
        async with self._database.write(deployment.tenant) as connection:
            await connection.execute(once, row)

    async def of_workflow(self, tenant: TenantId, name: str, *, limit: int) -> Sequence[Deployment]:
        query = select(deployments).where(deployments.c.tenant_id == tenant, deployments.c.name == name)
        async with self._database.read(tenant) as connection:
            rows = await connection.execute(query.order_by(deployments.c.at_ms.desc()).limit(limit))
            return [
                Deployment(
                    tenant=tenant,
                    workflow_id=row.workflow_id,
                    name=row.name,
                    version=row.version,
                    by=row.deployed_by,
                    replayed=row.replayed,
                    diverged=row.diverged,
                    reason=row.reason,
                    at_ms=row.at_ms,
                )
                for row in rows
            ]
