"""How much a deployment lets happen at once, as the composition root says it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentflow import limits
from agentflow.ids import TenantId
from control_plane.orchestrator.admission import NoLimits, Room
from control_plane.orchestrator.within_budget import Budgets, Unbudgeted


@dataclass(frozen=True, slots=True)
class Bounds:
    room: Room = field(default_factory=NoLimits)
    tenant_max: Callable[[TenantId], int | None] = lambda _: None  # executions a tenant may have under way
    open_max: int = limits.OPEN_EXECUTIONS_MAX  # executions kept in memory
    budgets: Budgets = field(default_factory=Unbudgeted)
    window: int = limits.DISPATCH_WINDOW  # steps of a tenant that an agent has at once


NO_BOUNDS = Bounds()
