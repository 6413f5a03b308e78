"""Whether what a path names is there for whoever asks.

A wrong request about another tenant's thing must be answered like one about nothing at all: what is wrong with it is
told only to who may see the thing. Looked up only where there is something wrong, so a right request pays nothing.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentflow.errors import AgentFlowError, Forbidden, Limited, NotFound, Rejected, Unauthenticated
from agentflow.ids import ExecutionId
from control_plane.identity.principals import Principal
from control_plane.service import ControlPlane

_Find = Callable[[ControlPlane, Principal, str], Awaitable[object]]


async def _agent(plane: ControlPlane, caller: Principal, name: str) -> object:
    return plane.agents.workers(caller.tenant, name)


# By the beginning of the paths of their routes. Each raises `NotFound` for what is not there.
_FOUND_BY: dict[str, _Find] = {
    "/api/v1/agents/{name}": _agent,
    "/api/v1/budgets/{budget}": lambda plane, caller, it: plane.budgets.find(caller.tenant, it),
    "/api/v1/executions/{execution}": lambda plane, caller, it: plane.orchestrator.state(
        caller.tenant, ExecutionId(it)
    ),
    "/api/v1/jobs/{job}": lambda plane, caller, it: plane.jobs.find(caller.tenant, it),
    "/api/v1/plans/{plan}": lambda plane, caller, it: plane.estimates.workflow_of(caller.tenant, it),
    "/api/v1/roles/{role}": lambda plane, caller, it: plane.identity.directory.role(caller, it),
    "/api/v1/schedules/{name}": lambda plane, caller, it: plane.schedules.find(caller.tenant, it),
    "/api/v1/snapshots/{snapshot}": lambda plane, caller, it: plane.snapshots.find(caller.tenant, it),
    "/api/v1/tenants/{tenant}": lambda plane, caller, it: plane.identity.tenants.show(caller, it),
    "/api/v1/tools/{reference}": lambda plane, caller, it: plane.tools.find(caller.tenant, it),
    "/api/v1/traces/{trace}": lambda plane, caller, it: plane.traces.find(caller.tenant, it),
    "/api/v1/users/{user}": lambda plane, caller, it: plane.identity.directory.user(caller, it),
    "/api/v1/workflows/{name}": lambda plane, caller, it: plane.registry.find(caller.tenant, it),
    "/api/v1/workflows/{reference}": lambda plane, caller, it: plane.registry.find(caller.tenant, it),
}


def owner_of(path: str) -> str | None:
    """The thing that a route's path is about, as the beginning of it; None where it names none."""
    return next((begin for begin in _FOUND_BY if path == begin or path.startswith(f"{begin}/")), None)


async def told_of(
    error: AgentFlowError, path: str, named: Mapping[str, Any], plane: ControlPlane, caller: Principal
) -> AgentFlowError:
    """What whoever asked is told: what was wrong, or that there is no such thing for them."""
    thing = owner_of(path)
    if thing is None or not _is_about_the_request(error):
        return error
    try:
        await _FOUND_BY[thing](plane, caller, str(named[thing.rpartition("{")[2].rstrip("}")]))
    except NotFound as nothing:
        return nothing
    except AgentFlowError:
        pass  # nobody can say now; what was wrong with the request is still true
    return error


def _is_about_the_request(error: AgentFlowError) -> bool:
    return isinstance(error, Rejected) and not isinstance(error, NotFound | Forbidden | Unauthenticated | Limited)
