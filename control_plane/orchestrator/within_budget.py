"""Nothing is begun that a used-up budget covers: the rule for one decision, and how what stands still goes on.

An execution is paused at the moment at which it would begin something that is not covered any more, and only then: what
is under way ends and is recorded, and who spends nothing is left alone. The pause is an event like any other, so that
it outlives whoever decided it; who stands still follows from the states. Undoing is never held back.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from agentflow import limits
from agentflow.contracts.usage import Usage
from agentflow.execution.commands import DispatchStep, StartChild
from agentflow.execution.decide import Decision
from agentflow.execution.messages import Beginning, ExecutionMessage, Pause, Resume, Stamp, TimeReached
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, TenantId, shard_of
from control_plane.costs.budget import BudgetUsedUp
from control_plane.orchestrator.inbox import Arrival, Inbox

# The same message, or another one, decided for this state.
Decide = Callable[[ExecutionState, ExecutionMessage], Awaitable[Decision]]


class Budgets(Protocol):
    """What is left of every budget, known without asking anybody: `control_plane.costs.purse`."""

    looked: Callable[[], None]

    @property
    def short(self) -> bool: ...

    def forbids(self, tenant: TenantId, workflows: Collection[str], agents: Collection[str]) -> BudgetUsedUp | None: ...

    def holds(self, tenant: TenantId, budget: str) -> bool: ...

    def decided(self, tenant: TenantId, workflow: str, at_ms: int, usage: Sequence[Usage]) -> Any: ...

    def settled(self, counted: Any, *, durable: bool) -> None: ...


class Unbudgeted:
    """For deployments and tests in which nobody counts money."""

    short = False

    def __init__(self) -> None:
        self.looked: Callable[[], None] = lambda: None

    def forbids(self, tenant: TenantId, workflows: Collection[str], agents: Collection[str]) -> BudgetUsedUp | None:
        return None

    def holds(self, tenant: TenantId, budget: str) -> bool:
        return False

    def decided(self, tenant: TenantId, workflow: str, at_ms: int, usage: Sequence[Usage]) -> Any:
        return ()

    def settled(self, counted: Any, *, durable: bool) -> None:
        pass


class _Held(NamedTuple):
    tenant: TenantId
    budget: str
    version: int


class WithinBudget:
    def __init__(self, *, budgets: Budgets, inbox: Inbox, stamp: Callable[[], Stamp], shards: int) -> None:
        self.budgets = budgets
        self._inbox = inbox
        self._stamp = stamp
        self._shards = shards
        self._held: dict[ExecutionId, _Held] = {}
        budgets.looked = self._go_on

    async def decision(
        self, state: ExecutionState, message: ExecutionMessage, decided: Decision, decide: Decide
    ) -> Decision:
        """`decided`, or the pause in its place. Raises where what is asked for would only begin something."""
        over = self._forbidden(state, message, decided)
        if over is None:
            return decided
        pause = _pause(state, over, message.stamp)
        if state.status is Status.RUNNING:
            stopped = await decide(state, pause)
            heard = await decide(stopped.state, message)
            return Decision(heard.state, stopped.events + heard.events, stopped.commands + heard.commands)
        if isinstance(message, Resume) and message.budget:
            return await decide(state, pause)  # the one that held it has something again, another one has not
        raise over

    def withholds(self, state: ExecutionState, agent: str) -> bool:
        """Whether a step that was decided before its budget was used up, and is not sent yet, has to wait.

        Then all of its execution waits, so that no time runs out meanwhile and everybody sees why.
        """
        if not self.budgets.short or state.workflow is None or state.ending is not None:
            return False
        over = self.budgets.forbids(state.tenant, (state.workflow.name,), (agent,))
        if over is None:
            return False
        if state.status is Status.RUNNING:
            self._post(state.execution, _pause(state, over, self._stamp()))
        return True

    def moved(self, state: ExecutionState) -> None:
        """Of ours, and durable."""
        if state.held_by:
            self._held[state.execution] = _Held(state.tenant, state.held_by, state.version)
        elif self._held:
            self._held.pop(state.execution, None)

    def let_go(self, shards: Collection[int]) -> None:
        for execution in [one for one in self._held if shard_of(one, self._shards) in shards]:
            del self._held[execution]

    def _go_on(self) -> None:
        """Whatever stands still for a budget that stops nothing any more. Asked again until it has gone on."""
        free = (
            (execution, held)
            for execution, held in self._held.items()
            if not self.budgets.holds(held.tenant, held.budget)
        )
        for execution, held in list(islice(free, limits.BUDGET_GO_ON_MAX)):
            stamp = self._stamp()
            # Nobody worked on what was never sent, so no time-out has run out meanwhile.
            excused = Stamp(stamp.at_ms, stamp.chance, hears=False)
            self._post(execution, Resume(excused, f"{held.budget}/{held.version}/on", held.budget))

    def _post(self, execution: ExecutionId, message: Pause | Resume) -> None:
        self._inbox.put(Arrival(execution, message, lambda _: None, lambda _: None))

    def _forbidden(self, state: ExecutionState, message: ExecutionMessage, decided: Decision) -> BudgetUsedUp | None:
        after = decided.state
        if after.workflow is None or state.ending is not None:
            return None
        begins = isinstance(message, Beginning) and state.version == 0
        agents: set[str] = set()
        workflows = {after.workflow.name}
        if begins or not (after.ended or after.ending is not None):
            agents |= {command.agent for command in decided.commands if isinstance(command, DispatchStep)}
            workflows |= {command.workflow for command in decided.commands if isinstance(command, StartChild)}
        if isinstance(message, TimeReached) and decided.events:
            # A step may have run out of time while it waited to be sent: nobody may fail by that.
            agents |= {flight.agent for flight in state.in_flight.values()}
        if not (begins or agents or len(workflows) > 1):
            return None
        return self.budgets.forbids(after.tenant, workflows, agents)


def _pause(state: ExecutionState, over: BudgetUsedUp, stamp: Stamp) -> Pause:
    """The same for the same state, so that it is recorded once."""
    return Pause(stamp, f"{over.budget}/{state.version}", over.message, over.budget)
