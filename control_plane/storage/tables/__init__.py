"""Every table, as it is after the newest migration; a test holds the two equal on both engines.

One file for each subject; all of them are imported here, so that `metadata` is complete whoever asks for it.
Moments are milliseconds since the epoch and JSON is kept as it was written, so both engines give back exactly
what was put in.
"""

from control_plane.storage.tables.executions import (
    event_store,
    execution_snapshots,
    executions,
    human_tasks,
    plan_steps,
    plans,
)
from control_plane.storage.tables.people import (
    api_keys,
    rbac_bindings,
    rbac_roles,
    revoked_tokens,
    signing_keys,
    storage_use,
    tenants,
    users,
)
from control_plane.storage.tables.shards import deployment, shard_leases
from control_plane.storage.tables.trust import (
    audit_heads,
    audit_pending,
    audits,
    budgets,
    cost_observations,
    secrets,
    snapshots,
)
from control_plane.storage.tables.types import Retention, metadata
from control_plane.storage.tables.work import (
    admissions,
    agent_states,
    agents,
    idempotency_keys,
    jobs,
    schedules,
    tools,
)
from control_plane.storage.tables.workflows import deployments, workflows

__all__ = [
    "Retention",
    "admissions",
    "agent_states",
    "agents",
    "api_keys",
    "audit_heads",
    "audit_pending",
    "audits",
    "budgets",
    "cost_observations",
    "deployment",
    "deployments",
    "event_store",
    "execution_snapshots",
    "executions",
    "human_tasks",
    "idempotency_keys",
    "jobs",
    "metadata",
    "plan_steps",
    "plans",
    "rbac_bindings",
    "rbac_roles",
    "revoked_tokens",
    "schedules",
    "secrets",
    "shard_leases",
    "signing_keys",
    "snapshots",
    "storage_use",
    "tenants",
    "tools",
    "users",
    "workflows",
]
