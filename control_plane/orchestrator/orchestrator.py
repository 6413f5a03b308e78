"""The owner of executions, as the API sees it: start one, look at one, wait for one.

Builds the rooms of this package around the ports it is given, and runs their loops. `epochs` are the leases it
writes under, by shard: it owns those shards and no others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import StepFault
from agentflow.errors import AgentFlowError, Conflict, NotFound, Unavailable
from agentflow.execution import messages
from agentflow.execution.commands import DispatchStep
from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import ExecutionMessage, Stamp, Start, StepReported, TimeReached
from agentflow.execution.state import ExecutionState, Status, next_wakeup
from agentflow.ids import ExecutionId, TenantId, UlidSource, WorkerId, shard_of
from agentflow.ports import EventStore, MessageBus, Shelf
from control_plane.orchestrator.children import Children, Resolve
from control_plane.orchestrator.commit_loop import CommitLoop, ProgramOf, UnknownExecution
from control_plane.orchestrator.inbox import Arrival, Inbox
from control_plane.orchestrator.outbound import SENDER, Outbound
from control_plane.orchestrator.performer import Performer
from control_plane.orchestrator.results import Results
from control_plane.orchestrator.sweeper import Sweeper
from control_plane.orchestrator.timers import Timers
from control_plane.orchestrator.watchers import Wanted, Watchers

_log = structlog.get_logger(__name__)


class ExecutionNotFound(NotFound):
    code = "AF1007"

    def __init__(self, execution: str) -> None:
        super().__init__(f"There is no execution {execution!r}.", hint="List them with `af executions list`.")


class ExecutionEnded(Conflict):
    code = "AF1215"

    def __init__(self, execution: str, status: str) -> None:
        super().__init__(
            f"Execution {execution} is {status}: nothing can be asked of it any more.",
            hint="Start a new one; a failed one can be continued with `af executions retry`.",
        )


class NotFailed(Conflict):
    code = "AF1216"

    def __init__(self, execution: str, status: str) -> None:
        super().__init__(
            f"Execution {execution} is {status}, so there is no failed step to retry.",
            hint="Only a failed execution can be continued from its failed step.",
        )


class Orchestrator:
    def __init__(
        self,
        *,
        store: EventStore,
        bus: MessageBus,
        program_of: ProgramOf,
        resolve: Resolve,
        clock: Clock,
        ids: UlidSource,
        chance: Callable[[], float],
        shards: int,
        epochs: Mapping[int, int],
        ack_wait_s: float,
        resend_after_s: float,
        claims: ClaimCheck | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._chance = chance
        self._shards = shards
        self._epochs = epochs
        self._ack_wait_s = ack_wait_s
        self._claims = claims
        self._open: dict[ExecutionId, ExecutionState] = {}
        self._inbox = Inbox()
        self._watchers = Watchers()
        self._timers = Timers(clock, self._wake)
        outbound = Outbound(bus=bus, clock=clock, ids=ids, shards=shards, unsendable=self._fail_step)
        self._sweeper = Sweeper(
            bus=bus,
            outbound=outbound,
            clock=clock,
            open_executions=self._open,
            resend_after_s=resend_after_s,
        )
        self._performer = Performer(
            outbound=outbound,
            sweeper=self._sweeper,
            children=Children(inbox=self._inbox, stamp=self._stamp, resolve=resolve, claims=claims),
            open_executions=self._open,
        )
        self._loop = CommitLoop(
            inbox=self._inbox,
            store=store,
            program_of=program_of,
            outbound=outbound,
            timers=self._timers,
            performer=self._performer,
            watchers=self._watchers,
            open_executions=self._open,
            shards=shards,
            epochs=epochs,
            claims=claims,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what was left open, then work until the block ends."""
        await self._recover()
        results = Results(self._inbox, self._stamp)
        inbox = await self._bus.subscribe(subjects.shard_inbox(ack_wait_s=self._ack_wait_s), results.receive)
        try:
            async with asyncio.TaskGroup() as loops:
                tasks = [
                    loops.create_task(self._loop.run(), name="commit loop"),
                    loops.create_task(self._timers.run(), name="timers"),
                    loops.create_task(self._sweep(), name="sweeper"),
                ]
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()
        finally:
            await inbox.stop()

    async def start(
        self,
        tenant: TenantId,
        workflow: WorkflowRef,
        input: Any,
        *,
        timeout_ms: int | None,
    ) -> ExecutionState:
        """Commit the start of a new execution; returns once it is durable."""
        execution = self._new_id()
        # Here already, so that no large input waits for its commit in memory.
        kept = input if self._claims is None else await self._claims.checked(Shelf(tenant, execution), input)
        message = Start(self._stamp(), execution, tenant, workflow, kept, self._ids.trace(), timeout_ms)
        committed, arrival = self._awaited(execution, message)
        self._inbox.admit(tenant, arrival)
        return await committed

    async def state(self, tenant: TenantId, execution: ExecutionId) -> ExecutionState:
        state = self._open.get(execution) or await self._store.load(execution)
        if state is None or state.tenant != tenant:
            raise ExecutionNotFound(execution)
        return state

    async def wait(
        self, tenant: TenantId, execution: ExecutionId, wanted: Wanted, *, within_s: float
    ) -> ExecutionState:
        """The first committed state that is wanted, or the newest one when the time is over."""
        moved = self._watchers.expect(execution, wanted)  # before looking, so that nothing falls between
        try:
            state = await self.state(tenant, execution)
            if wanted(state):
                return state
            async with asyncio.timeout(within_s):
                return await moved
        except TimeoutError:
            return await self.state(tenant, execution)
        finally:
            moved.cancel()

    async def request(
        self, tenant: TenantId, execution: ExecutionId, wanted: Callable[[Stamp], messages.Request]
    ) -> ExecutionState:
        """Commit what somebody wants of an execution; the state it leads to, once that is durable."""
        state = await self.state(tenant, execution)
        message = wanted(self._stamp())
        if isinstance(message, messages.RetryFailed):
            if state.status is not Status.FAILED:
                raise NotFailed(execution, state.status)
        elif state.ended and not (isinstance(message, messages.UpdateVars) and state.status is Status.FAILED):
            raise ExecutionEnded(execution, state.status)
        committed, arrival = self._awaited(execution, message)
        self._inbox.put(arrival)
        return await committed

    def _awaited(
        self, execution: ExecutionId, message: ExecutionMessage
    ) -> tuple[asyncio.Future[ExecutionState], Arrival]:
        committed: asyncio.Future[ExecutionState] = asyncio.get_running_loop().create_future()

        def settled(state: ExecutionState) -> None:
            if not committed.done():
                committed.set_result(state)

        def refused(error: AgentFlowError) -> None:
            if not committed.done():
                committed.set_exception(error)

        return committed, Arrival(execution, message, settled, refused)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(limits.SWEEP_S)
            try:
                await self._sweeper.sweep()
                await self._performer.catch_up()
            except Unavailable as error:
                _log.warning("sweep.postponed", reason=error.message)

    async def _recover(self) -> None:
        left = await self._store.open_executions(sorted(self._epochs))
        for first in range(0, len(left), limits.RECOVER_AT_ONCE):
            for state in await self._store.load_all(left[first : first + limits.RECOVER_AT_ONCE]):
                if not state.ended:
                    self._loop.adopt(state)
        if self._open:
            _log.info("executions.recovered", executions=len(self._open))
            await self._sweeper.sweep()
            await self._performer.catch_up()

    def _wake(self, execution: ExecutionId) -> None:
        def settled(_: ExecutionState) -> None:
            state = self._open.get(execution)
            if state is not None:
                self._timers.arm(execution, next_wakeup(state))

        def refused(error: AgentFlowError) -> None:
            if not isinstance(error, UnknownExecution):
                self._timers.arm_soon(execution)

        self._inbox.put(Arrival(execution, TimeReached(self._stamp()), settled, refused))

    def _fail_step(self, execution: ExecutionId, command: DispatchStep, fault: StepFault) -> None:
        """A report in the name of a worker that could never be reached."""
        stamp = self._stamp()
        report = StepReported(
            stamp, command.path, command.attempt, WorkerId(SENDER), stamp.at_ms, stamp.at_ms, fault=fault
        )
        self._inbox.put(Arrival(execution, report, lambda _: None, lambda _: self._timers.arm_soon(execution)))

    def _new_id(self) -> ExecutionId:
        """An id whose shard is ours, so that a start never hops to another replica."""
        while True:
            execution = self._ids.execution()
            if shard_of(execution, self._shards) in self._epochs:
                return execution

    def _stamp(self) -> Stamp:
        return Stamp(self._clock.now_ms(), self._chance())
