"""Roles as sets of permissions: what each built-in one may do, and how several become one authority."""

from control_plane.identity.permissions import BUILT_IN, Permission, Role, authority, built_in_role

# Who may do what, at a glance; a change here is a change of everybody's rights.
MATRIX = {
    "self": "",
    "workflows.read": "admin auditor developer operator viewer",
    "workflows.write": "admin developer",
    "workflows.execute": "admin developer operator",
    "executions.read": "admin auditor developer operator viewer",
    "executions.control": "admin developer operator",
    "tasks.answer": "admin developer operator",
    "schedules.read": "admin auditor developer operator viewer",
    "schedules.write": "admin developer operator",
    "tools.read": "admin auditor developer operator viewer",
    "tools.write": "admin developer",
    "tools.test": "admin developer",
    "agents.read": "admin auditor developer operator viewer",
    "budgets.read": "admin auditor developer operator viewer",
    "budgets.write": "admin operator",
    "costs.read": "admin auditor developer operator viewer",
    "traces.read": "admin auditor developer operator viewer",
    "snapshots.read": "admin auditor developer operator viewer",
    "snapshots.write": "admin developer operator",
    "audit.read": "admin auditor",
    "users.read": "admin auditor",
    "users.write": "admin",
    "roles.read": "admin auditor",
    "roles.write": "admin",
    "tenant.read": "admin auditor developer operator viewer",
    "tenants.manage": "admin",
    "worker.attach": "admin worker",
}


def test_the_built_in_roles_allow_exactly_what_the_table_says():
    held = {
        permission: " ".join(sorted(role for role, permissions in BUILT_IN.items() if permission in permissions))
        for permission in Permission
    }

    assert held == {**MATRIX, "self": "admin"}


def test_everybody_has_what_concerns_only_themselves_and_nothing_without_a_role():
    assert authority([], runs_the_deployment=True).permissions == {Permission.SELF}


def test_only_the_tenant_that_runs_the_deployment_manages_tenants():
    admin = [built_in_role("admin")]

    assert authority(admin, runs_the_deployment=True).may(Permission.TENANTS_MANAGE)
    assert not authority(admin, runs_the_deployment=False).may(Permission.TENANTS_MANAGE)


def test_scopes_take_away_and_never_give():
    viewer = [built_in_role("viewer")]

    limited = authority(viewer, runs_the_deployment=True, scopes=["executions.read", "users.write", "no.such"])

    assert limited.permissions == {Permission.SELF, Permission.EXECUTIONS_READ}


def test_roles_together_allow_what_any_of_them_does():
    kb = Role("r1", "kb", frozenset({Permission.TOOLS_TEST}), tools=("kb.*",), workflows=("support",))
    crm = Role("r2", "crm", frozenset({Permission.TOOLS_READ}), tools=("crm.lookup",), workflows=())

    both = authority([kb, crm], runs_the_deployment=False)

    assert both.permissions == {Permission.SELF, Permission.TOOLS_TEST, Permission.TOOLS_READ}
    assert [name for name in ("kb.search", "crm.lookup", "crm.delete", "shell.run") if both.may_use_tool(name)] == [
        "kb.search",
        "crm.lookup",
    ]
    assert both.may_run("support")
    assert not both.may_run("payroll")
    assert authority([kb, built_in_role("viewer")], runs_the_deployment=False).may_use_tool("shell.run")
