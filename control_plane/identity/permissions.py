"""What may be done, and which role may do it. Pure.

Every operation of every way in names exactly one permission (`control_plane.api.guard`, `control_plane.rpc.guard`); a
role is a set of them, with the tools and workflows it is for. Restrictions only ever take away.
"""

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec


class Permission(StrEnum):
    SELF = "self"  # whatever concerns only whoever asks; every principal has it
    WORKFLOWS_READ = "workflows.read"
    WORKFLOWS_WRITE = "workflows.write"
    WORKFLOWS_EXECUTE = "workflows.execute"
    EXECUTIONS_READ = "executions.read"
    EXECUTIONS_CONTROL = "executions.control"  # pause, cancel, signal, variables, retry
    TASKS_ANSWER = "tasks.answer"
    SCHEDULES_READ = "schedules.read"
    SCHEDULES_WRITE = "schedules.write"
    TOOLS_READ = "tools.read"
    TOOLS_WRITE = "tools.write"
    TOOLS_TEST = "tools.test"
    AGENTS_READ = "agents.read"
    BUDGETS_READ = "budgets.read"
    BUDGETS_WRITE = "budgets.write"
    COSTS_READ = "costs.read"
    TRACES_READ = "traces.read"
    SNAPSHOTS_READ = "snapshots.read"
    SNAPSHOTS_WRITE = "snapshots.write"
    AUDIT_READ = "audit.read"
    USERS_READ = "users.read"
    USERS_WRITE = "users.write"  # people, service accounts, their roles and keys
    ROLES_READ = "roles.read"
    ROLES_WRITE = "roles.write"
    TENANT_READ = "tenant.read"  # one's own
    TENANTS_MANAGE = "tenants.manage"  # all of them: only from the tenant that runs the deployment
    WORKER_ATTACH = "worker.attach"


# What only the tenant that runs the deployment may do; an admin of any other has all but these.
OF_THE_DEPLOYMENT = frozenset({Permission.TENANTS_MANAGE})

_P = Permission
_LOOKING = frozenset(
    {
        _P.WORKFLOWS_READ, _P.EXECUTIONS_READ, _P.SCHEDULES_READ, _P.TOOLS_READ, _P.AGENTS_READ, _P.BUDGETS_READ,
        _P.COSTS_READ, _P.TRACES_READ, _P.SNAPSHOTS_READ, _P.TENANT_READ,
    }
)  # fmt: skip
_RUNNING = frozenset({_P.WORKFLOWS_EXECUTE, _P.EXECUTIONS_CONTROL, _P.TASKS_ANSWER, _P.SCHEDULES_WRITE})

BUILT_IN: dict[str, frozenset[Permission]] = {
    "admin": frozenset(Permission),
    "operator": _LOOKING | _RUNNING | {_P.BUDGETS_WRITE, _P.SNAPSHOTS_WRITE},
    "developer": _LOOKING | _RUNNING | {_P.WORKFLOWS_WRITE, _P.TOOLS_WRITE, _P.TOOLS_TEST, _P.SNAPSHOTS_WRITE},
    "viewer": _LOOKING,
    "auditor": _LOOKING | {_P.AUDIT_READ, _P.USERS_READ, _P.ROLES_READ},
    "worker": frozenset({_P.WORKER_ATTACH}),
}


class Role(msgspec.Struct, frozen=True):
    """A named set of permissions. `tools` and `workflows` are patterns such as `kb.*`; None means every one."""

    id: str
    name: str
    permissions: frozenset[Permission]
    tools: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None
    created_at_ms: int = 0

    @property
    def built_in(self) -> bool:
        return self.id in BUILT_IN


class Authority(msgspec.Struct, frozen=True):
    """What all roles of a principal allow together."""

    permissions: frozenset[Permission]
    tools: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def may_use_tool(self, name: str) -> bool:
        return self.tools is None or any(fnmatchcase(name, pattern) for pattern in self.tools)

    def may_run(self, workflow: str) -> bool:
        return self.workflows is None or any(fnmatchcase(workflow, pattern) for pattern in self.workflows)


def authority(roles: Iterable[Role], *, runs_the_deployment: bool, scopes: Iterable[str] | None = None) -> Authority:
    """The union of the roles, within `scopes` where a credential has some. `SELF` is everybody's."""
    held = list(roles)
    permissions = frozenset[Permission]().union(*(role.permissions for role in held))
    if not runs_the_deployment:
        permissions -= OF_THE_DEPLOYMENT
    if scopes is not None:
        permissions &= frozenset(scopes)
    return Authority(
        permissions | {Permission.SELF},
        tools=_any_of([role.tools for role in held]),
        workflows=_any_of([role.workflows for role in held]),
    )


def _any_of(patterns: list[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    if not patterns:
        return ()
    together: tuple[str, ...] = ()
    for some in patterns:
        if some is None:
            return None
        together += some
    return together


def built_in_role(name: str) -> Role:
    return Role(id=name, name=name, permissions=BUILT_IN[name])
