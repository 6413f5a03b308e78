"""Who decides what a call may have besides its tool: the role of the workflow that calls, and the tenant.

The contract is `Authorities`, and it is small on purpose: `agent` asks it before each call, and whoever knows roles
and tenants better than a file does may answer instead. `PolicyFile` answers from the agents file's `policy`. Every
answer is grants, intersected by `sandbox.policy`; nobody can widen what another one withholds.
"""

from collections.abc import Mapping
from typing import Protocol

from agentflow.errors import Rejected
from sandbox.policy import MIB, OPERATOR, Bounds, Grants, check_grants
from worker.agents_file import GrantsSpec, PolicySpec, RegisteredTools

_EVERYBODY = "*"


class Authorities(Protocol):
    def of(self, tenant: str, workflow: str) -> tuple[Grants, ...]:
        """Everybody who has a say in a call of this workflow, for this tenant. Asked for every call: be quick."""
        ...


class TwoRoles(Rejected):
    code = "AF1439"

    def __init__(self, workflow: str, one: str, other: str) -> None:
        super().__init__(
            f"The roles {one!r} and {other!r} are both for the workflow {workflow!r}.",
            hint="A workflow has one role: take its name out of one of them.",
        )


class PolicyFile:
    def __init__(self, policy: PolicySpec) -> None:
        self._roles: dict[str, Grants] = {}
        named: dict[str, str] = {}
        for name, role in policy.roles.items():
            grants = grants_of(f"the role {name!r} of the agents file", role)
            for workflow in role.workflows:
                if workflow in named:
                    raise TwoRoles(workflow, named[workflow], name)
                named[workflow] = name
                self._roles[workflow] = grants
        self._tenants = {
            name: grants_of(f"the policy for tenant {name!r} in the agents file", tenant)
            for name, tenant in policy.tenants.items()
        }

    def of(self, tenant: str, workflow: str) -> tuple[Grants, ...]:
        return (
            _one_of(self._roles, workflow, f"any role of the agents file (none is for workflow {workflow!r})"),
            _one_of(self._tenants, tenant, f"the agents file (its `tenants` do not name {tenant!r})"),
        )


def _one_of(known: Mapping[str, Grants], name: str, nobody: str) -> Grants:
    if not known:
        return OPERATOR
    return known.get(name) or known.get(_EVERYBODY) or Grants(nobody)


def grants_of(authority: str, spec: GrantsSpec) -> Grants:
    """A part of the agents file as the compiler reads it; refused now, and not at the first call, if it cannot be."""
    ceilings = spec.ceilings
    bounds = Bounds(
        wall_s=None if ceilings.timeout is None else ceilings.timeout / 1000,
        cpus=ceilings.cpus,
        memory_bytes=None if ceilings.memory_mb is None else ceilings.memory_mb * MIB,
        processes_max=ceilings.processes,
        disk_bytes=None if ceilings.disk_mb is None else ceilings.disk_mb * MIB,
        output_bytes=None if ceilings.output_kb is None else ceilings.output_kb * 1024,
    )
    return check_grants(Grants(authority, tuple(spec.allow), tuple(spec.deny), bounds, spec.sandbox))


def registered_tools(spec: RegisteredTools | None) -> Grants:
    return grants_of("the agents file's `registered_tools`", spec or RegisteredTools())
