"""Whose workers do a step: those of its tenant, or those that all tenants share. Pure.

A pool is a tenant's id, or `SHARED`. It is part of every subject on which workers speak or are spoken to, so the bus
itself holds a worker to its own (`agentflow.bus.permissions`); nobody has to believe what a message says of its sender.
"""

from collections.abc import Iterable

from agentflow.ids import AgentName, TenantId

SHARED = "_shared"  # no tenant's id begins with an underscore
ANY = "*"


class Pools:
    """Where steps go. `shared`: agents whose steps go to the shared workers, whatever the tenant; `*` for all."""

    __slots__ = ("_all", "_shared")

    def __init__(self, shared: Iterable[str] = ()) -> None:
        self._shared = frozenset(shared)
        self._all = ANY in self._shared

    def of(self, tenant: TenantId, agent: AgentName | str) -> str:
        return SHARED if self._all or agent in self._shared else tenant

    def all_of(self, tenant: TenantId) -> tuple[str, ...]:
        """Every pool that may have steps of a tenant."""
        if self._all:
            return (SHARED,)
        return (tenant, SHARED) if self._shared else (tenant,)


NOTHING_SHARED = Pools()


def may_act_for(pool: str, tenant: str) -> bool:
    """Whether workers of a pool may say anything about what belongs to a tenant."""
    return pool in (tenant, SHARED)
