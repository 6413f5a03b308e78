"""Executions that another one has started: begun once however often that is asked for, their end told to the parent.

A child's id follows from its parent and its path, so asking again finds what is there; and a child that has ended
answers at once. That is all recovery needs: whoever waits for a child asks for it again now and then, because the one
who committed its end may have died before it could tell.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.contracts.step import StepFault
from agentflow.errors import AgentFlowError, Bug, Rejected, Unavailable
from agentflow.execution.commands import CancelChild, StartChild
from agentflow.execution.events import Parent, Queued
from agentflow.execution.messages import Cancel, ChildEnded, Stamp, Start, TimeReached
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, StepPath, TenantId, derived_execution
from agentflow.limits import CHILD_DEPTH_MAX
from agentflow.ports import ShardLost, Shelf, Startable
from control_plane.orchestrator.inbox import Arrival

# Which version a name and a constraint mean now, once its input is proven good.
Resolve = Callable[[TenantId, str, str, Any], Awaitable[Startable]]

# Puts a message where its execution is decided: here, or on the replica that owns its shard.
Post = Callable[[TenantId, Arrival], None]


class Children:
    def __init__(
        self, *, post: Post, stamp: Callable[[], Stamp], resolve: Resolve, claims: ClaimCheck | None = None
    ) -> None:
        self._post = post
        self._stamp = stamp
        self._resolve = resolve
        self._claims = claims

    async def start(self, parent: ExecutionState, command: StartChild, *, refused: Callable[[], None]) -> None:
        """Begin a child, or hear from one that is there. `refused` is called when that should be tried again."""
        depth = 1 if parent.parent is None else parent.parent.depth + 1
        try:
            if depth > CHILD_DEPTH_MAX:
                raise _TooDeep
            given = await self._given(parent, command)
            workflow = await self._resolve(parent.tenant, command.workflow, command.version, given)
        except Rejected as error:
            fault = StepFault("child_not_started", error.message)
            self._tell(parent.tenant, parent.execution, command.path, None, fault, refused=refused)
            return
        except Unavailable:
            refused()
            return
        child = Start(
            stamp=self._stamp(),
            execution=child_id(parent, command.path),
            tenant=parent.tenant,
            workflow=workflow.ref,
            input=command.input,
            trace=parent.trace,
            timeout_ms=workflow.timeout_ms,
            parent=Parent(parent.execution, command.path, depth),
            env=parent.env,
            priority=parent.priority,
            # Not counted for the tenant: a parent that waits for its child would hold the room the child needs.
            queue=None if workflow.concurrency is None else Queued(workflow_max=workflow.concurrency),
        )

        def settled(state: ExecutionState) -> None:
            if state.ended:
                self.report(state, refused=refused)

        self._post(parent.tenant, Arrival(child.execution, child, settled, lambda _: refused(), again=True))

    def look(
        self, parent: ExecutionState, command: StartChild, *, unborn: Callable[[], None], refused: Callable[[], None]
    ) -> None:
        """Hear from a child that should be there: it is only looked at. `unborn` when it was never begun."""

        def settled(state: ExecutionState) -> None:
            if state.ended:
                self.report(state, refused=refused)

        def not_found(error: AgentFlowError) -> None:
            (unborn if error.code == UnknownExecution.code else refused)()

        child = child_id(parent, command.path)
        self._post(parent.tenant, Arrival(child, TimeReached(self._stamp()), settled, not_found))

    async def _given(self, parent: ExecutionState, command: StartChild) -> Any:
        """The input as its schema sees it. What is too large for a message is from now on the child's own, too."""
        if self._claims is None:
            return command.input
        mine, its = Shelf(parent.tenant, parent.execution), Shelf(parent.tenant, child_id(parent, command.path))
        await self._claims.handed_over(command.input, origin=mine, target=its)
        return await self._claims.whole(mine, command.input)

    def cancel(self, parent: ExecutionState, command: CancelChild) -> None:
        """Best effort: a child that could not be told goes on, and nobody listens to its end."""
        child = child_id(parent, command.path)
        reason = "The execution that started it no longer wants it."
        message = Cancel(self._stamp(), f"{parent.execution}/{command.path}", reason)
        self._post(parent.tenant, Arrival(child, message, lambda _: None, lambda _: None))

    def report(self, child: ExecutionState, *, refused: Callable[[], None]) -> None:
        if child.parent is None:
            raise Bug(f"Execution {child.execution} is nobody's child.")
        fault = child.fault
        if fault is None and child.status is not Status.COMPLETED:
            fault = StepFault("child_ended", f"The child execution is {child.status}.")
        self._tell(child.tenant, child.parent.execution, child.parent.path, child.output, fault, refused=refused)

    def _tell(
        self,
        tenant: TenantId,
        parent: ExecutionId,
        path: StepPath,
        output: Any,
        fault: StepFault | None,
        *,
        refused: Callable[[], None],
    ) -> None:
        message = ChildEnded(self._stamp(), path, output, fault)

        def not_taken(error: AgentFlowError) -> None:
            if error.retryable or isinstance(error, ShardLost):
                refused()

        self._post(tenant, Arrival(parent, message, lambda _: None, not_taken))


class UnknownExecution(Bug):
    """Not raised at people: a message named an execution that was never committed, so it is dropped."""

    code = "AF9001"

    def __init__(self, execution: ExecutionId) -> None:
        super().__init__(
            f"A message names execution {execution}, which was never committed.",
            hint="Check that workers and control plane use the same database and the same NATS.",
        )


class _TooDeep(Rejected):
    code = "AF1214"

    def __init__(self) -> None:
        super().__init__(
            f"Workflows start workflows more than {CHILD_DEPTH_MAX} levels deep.",
            hint="Look for a workflow that starts itself, directly or through others.",
        )


def child_id(parent: ExecutionState, path: StepPath) -> ExecutionId:
    """With the parent's own time in it: what is stored by day, and removed by day, stays together."""
    return derived_execution(parent.started_at_ms, f"{parent.execution}/{path}")
