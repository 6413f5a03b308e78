"""The owner of executions, as the API sees it: start one, look at one, wait for one.

Builds the rooms of this package around the ports it is given, and runs their loops. Several replicas share the
shards; `routing` finds the owner of whatever is not ours, so a caller need not know about shards.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.pools import NOTHING_SHARED, Pools, may_act_for
from agentflow.contracts.step import WORKER_LOST, HeldStep, StepFault
from agentflow.errors import AgentFlowError, Conflict, NotFound, Unavailable
from agentflow.execution import messages
from agentflow.execution.commands import DispatchStep
from agentflow.execution.events import Queued, WorkflowRef
from agentflow.execution.messages import Stamp, Start, StepReported, TimeReached
from agentflow.execution.state import ExecutionState, Status, next_wakeup
from agentflow.ids import ExecutionId, TenantId, UlidSource, WorkerId, shard_of
from agentflow.ports import EventStore, MessageBus, ShardLost, Shelf, Subscription
from control_plane.orchestrator import relay
from control_plane.orchestrator.admission import Admission
from control_plane.orchestrator.bounds import NO_BOUNDS, Bounds
from control_plane.orchestrator.children import Children, Resolve, UnknownExecution
from control_plane.orchestrator.claiming import Claiming
from control_plane.orchestrator.commit_loop import CommitLoop, ProgramOf
from control_plane.orchestrator.feed import Feed
from control_plane.orchestrator.forking import Parting
from control_plane.orchestrator.idle import idle
from control_plane.orchestrator.inbox import Arrival, Inbox
from control_plane.orchestrator.outbound import SENDER, Outbound
from control_plane.orchestrator.ownership import Ownership
from control_plane.orchestrator.performer import Performer
from control_plane.orchestrator.results import Results
from control_plane.orchestrator.routing import Routing
from control_plane.orchestrator.sweeper import Holding, Sweeper
from control_plane.orchestrator.timers import Timers
from control_plane.orchestrator.watchers import Wanted, Watchers
from control_plane.orchestrator.windows import Place, Windows
from control_plane.orchestrator.within_budget import WithinBudget

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


class TaskNotOpen(NotFound):
    code = "AF1217"

    def __init__(self, execution: str, path: str) -> None:
        super().__init__(
            f"Execution {execution} has no open task {path!r}.",
            hint="It may have been answered or withdrawn; `af executions show` lists those that are open.",
        )


class NotBegun(Conflict):
    code = "AF1220"

    def __init__(self, execution: str) -> None:
        super().__init__(
            f"Execution {execution} is queued: it has not begun, so it can be neither paused nor resumed.",
            hint="Cancel it, or wait until it begins.",
        )


class TooManySignals(Conflict):
    code = "AF1222"

    def __init__(self, execution: str, name: str) -> None:
        kept = f"{limits.SIGNALS_KEPT_MAX} signals that nobody waited for yet"
        super().__init__(
            f"Execution {execution} keeps {kept}: `{name}` was not taken.",
            hint="Send it again once the workflow has waited for some of them, or correct the name that is sent.",
        )


def queue_for(not_before_ms: int | None, workflow_max: int | None, *, of_tenant: bool) -> Queued | None:
    if not_before_ms is None and workflow_max is None and not of_tenant:
        return None
    return Queued(not_before_ms, workflow_max, of_tenant)


# What people may want of an execution.
Wish = messages.Request | messages.TaskAnswered


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
        ownership: Ownership,
        resend_after_s: float,
        environment: Mapping[str, str],
        claims: ClaimCheck | None = None,
        bounds: Bounds = NO_BOUNDS,
        hears: Callable[[], bool] = lambda: True,
        pools: Pools = NOTHING_SHARED,
        holding: Holding = lambda _: frozenset(),
    ) -> None:
        self._pools = pools
        self._holding = holding
        self._store = store
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._chance = chance
        self._hears = hears
        self._shards = shards
        self._claims = claims
        self._environment = dict(environment)
        self._open: dict[ExecutionId, ExecutionState] = {}
        self._inbox = Inbox()
        self._results = Results(self._inbox, self._stamp, clock)
        self._watchers = Watchers()
        self._timers = Timers(clock, self._wake)
        self._inboxes: dict[int, list[Subscription]] = {}
        self._ownership = ownership
        self._routing = self._routed()
        self._bounds = bounds
        self._admission = self._admitting()
        self._feed = Feed(bus=bus, clock=clock, ids=ids, shards=shards)
        outbound = self._sending()
        self._windows = Windows(bounds.window)
        self._within_budget = WithinBudget(budgets=bounds.budgets, inbox=self._inbox, stamp=self._stamp, shards=shards)
        self._sweeper = self._sweeping(outbound, resend_after_s)
        self._performer = self._performing(outbound, resolve)
        self._loop = CommitLoop(
            inbox=self._inbox,
            store=store,
            program_of=program_of,
            feed=self._feed,
            timers=self._timers,
            performer=self._performer,
            watchers=self._watchers,
            open_executions=self._open,
            shards=shards,
            epochs=ownership.epochs,
            is_current=ownership.is_current,
            lost=lambda shards: ownership.forget(shards, why="fenced"),
            limited=self._admission.moved,
            within_budget=self._within_budget,
            claims=claims,
        )

    def _routed(self) -> Routing:
        return Routing(
            inbox=self._inbox,
            bus=self._bus,
            clock=self._clock,
            stamp=self._stamp,
            state=self.state,
            owned=self._ownership.epochs,
            shards=self._shards,
            claims=self._claims,
        )

    def _sending(self) -> Outbound:
        return Outbound(
            bus=self._bus,
            clock=self._clock,
            ids=self._ids,
            shards=self._shards,
            pools=self._pools,
            replica=self._ownership.replica,
            unsendable=self._fail_step,
        )

    def _sweeping(self, outbound: Outbound, resend_after_s: float) -> Sweeper:
        return Sweeper(
            bus=self._bus,
            outbound=outbound,
            clock=self._clock,
            open_executions=self._open,
            resend_after_s=resend_after_s,
            windows=self._windows,
            withholds=self._within_budget.withholds,
            pools=self._pools,
            holding=self._holding,
        )

    def _performing(self, outbound: Outbound, resolve: Resolve) -> Performer:
        return Performer(
            outbound=outbound,
            sweeper=self._sweeper,
            windows=self._windows,
            withholds=self._within_budget.withholds,
            children=Children(post=self._routing.post, stamp=self._stamp, resolve=resolve, claims=self._claims),
            open_executions=self._open,
            clock=self._clock,
        )

    def _admitting(self) -> Admission:
        return Admission(
            room=self._bounds.room,
            tenant_max=self._bounds.tenant_max,
            post=self._routing.post,
            clock=self._clock,
            stamp=self._stamp,
            shards=self._shards,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take our share of the shards and what was left open in them, then work until the block ends."""
        mine = subjects.direct_results(self._ownership.replica)
        direct = await self._bus.answer_pools(mine, self._results.hand_over)
        listening = await self._ownership.begin(gained=self._take_up, lost=self._let_go)
        try:
            async with asyncio.TaskGroup() as loops:
                tasks = [
                    loops.create_task(self._loop.run(), name="commit loop"),
                    loops.create_task(self._timers.run(), name="timers"),
                    loops.create_task(self._sweep(), name="sweeper"),
                    loops.create_task(self._ownership.run(), name="ownership"),
                    loops.create_task(self._feed.run(), name="feed"),
                    loops.create_task(self._admission.run(), name="admission"),
                ]
                try:
                    yield
                finally:
                    self._routing.stop()
                    for task in tasks:
                        task.cancel()
        finally:
            await self._feed.send()
            await direct.stop()
            await listening.stop()
            await self._ownership.leave()

    async def start(
        self,
        tenant: TenantId,
        workflow: WorkflowRef,
        input: Any,
        *,
        timeout_ms: int | None,
        reserved: ExecutionId | None = None,
        priority: int = 0,
        not_before_ms: int | None = None,
        workflow_max: int | None = None,
    ) -> ExecutionState:
        """Commit the start of a new execution; returns once it is durable.

        One that may have been started before under the id `reserved` for it is only looked at. It is queued when it
        may not begin yet: before its moment, or while `workflow_max` of its workflow are under way.
        """
        execution = reserved or self.new_id()
        # Here already, so that no large input waits for its commit in memory.
        kept = input if self._claims is None else await self._claims.checked(Shelf(tenant, execution), input)
        message = Start(
            self._stamp(), execution, tenant, workflow, kept, self._ids.trace(), timeout_ms,
            env=self._environment,
            priority=priority,
            queue=queue_for(not_before_ms, workflow_max, of_tenant=self._bounds.tenant_max(tenant) is not None),
        )  # fmt: skip
        return await self._routing.committed(tenant, execution, message, again=reserved is not None)

    async def fork(
        self,
        original: ExecutionState,
        parting: Parting,
        *,
        execution: ExecutionId,
        request: str,
        timeout_ms: int | None,
        workflow_max: int | None,
    ) -> ExecutionState:
        """Commit a new execution that begins as another one did; once the same, however often it is asked for."""
        message = messages.Fork(
            self._stamp(), execution, original.tenant, self._ids.trace(), request, parting.of, parting.kept,
            input=parting.input,
            vars=parting.vars,
            timeout_ms=timeout_ms,
            priority=original.priority,
            queue=queue_for(None, workflow_max, of_tenant=self._bounds.tenant_max(original.tenant) is not None),
            reason=parting.reason,
            workspace=parting.workspace,
        )  # fmt: skip
        return await self._routing.committed(original.tenant, execution, message, again=True)

    def owns(self, name: str) -> bool:
        """Whether what goes by this name is ours to look after, among all replicas: by its shard."""
        return shard_of(ExecutionId(name), self._shards) in self._ownership.epochs

    def new_id(self) -> ExecutionId:
        """An id whose shard is ours, so that a start never hops; any id while we have none."""
        execution = self._ids.execution()
        while self._ownership.epochs and not self._routing.is_ours(execution):
            execution = self._ids.execution()
        return execution

    async def state(self, tenant: TenantId, execution: ExecutionId) -> ExecutionState:
        known = self._open.get(execution) if self._ownership.is_current() else None
        if known is None or known.tenant != tenant:  # another's is looked for like what is nowhere, and takes as long
            known = await self._store.load(execution, tenant=tenant)
        if known is None:
            raise ExecutionNotFound(execution)
        return known

    async def wait(
        self, tenant: TenantId, execution: ExecutionId, wanted: Wanted, *, within_s: float
    ) -> ExecutionState:
        """The first committed state that is wanted, or the newest one when the time is over."""
        deadline_s = self._clock.monotonic_s() + within_s
        if not self._routing.is_ours(execution):
            return await self._routing.wait_elsewhere(tenant, execution, wanted, deadline_s)
        moved = self._watchers.expect(execution, wanted)  # before looking, so that nothing falls between
        try:
            state = await self.state(tenant, execution)
            if wanted(state):
                return state
            async with asyncio.timeout(within_s):
                return await moved
        except TimeoutError:
            return await self.state(tenant, execution)
        except ShardLost:  # it went to another replica while we waited
            return await self._routing.wait_elsewhere(tenant, execution, wanted, deadline_s)
        finally:
            moved.cancel()

    async def request(
        self,
        tenant: TenantId,
        execution: ExecutionId,
        wanted: Callable[[Stamp], Wish],
        *,
        only_at: int | None = None,
    ) -> ExecutionState:
        """Commit what somebody wants of an execution; the state it leads to, once that is durable.

        With `only_at`, only while the execution is at that version: a `VersionConflict` otherwise.
        """
        state = await self.state(tenant, execution)
        message = wanted(self._stamp())
        if isinstance(message, messages.TaskAnswered):
            if message.path not in state.tasks and message.path not in state.doubts:
                raise TaskNotOpen(execution, message.path)
        elif isinstance(message, messages.RetryFailed):
            if state.status is not Status.FAILED:
                raise NotFailed(execution, state.status)
        elif state.status is Status.QUEUED and isinstance(message, messages.Pause | messages.Resume):
            raise NotBegun(execution)
        elif state.ended and not (
            isinstance(message, messages.UpdateVars | messages.Move) and state.status is Status.FAILED
        ):
            raise ExecutionEnded(execution, state.status)
        after = await self._routing.committed(tenant, execution, message, only_at=only_at)
        if isinstance(message, messages.Signal) and not after.ended and message.id not in after.seen:
            raise TooManySignals(execution, message.name)
        return after

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(limits.SWEEP_S)
            self._hears()
            self._forget_idle()
            try:
                await self._sweeper.sweep()
                await self._performer.catch_up()
            except Unavailable as error:
                _log.warning("sweep.postponed", reason=error.message)

    async def _take_up(self, shards: Collection[int]) -> None:
        """Shards became ours: hear what is sent there, and go on with what is open in them."""
        claiming = Claiming(committed=self._routing.committed, stamp=self._stamp)
        for shard in shards:
            heard = self._inboxes[shard] = []
            heard.append(await self._bus.subscribe(subjects.shard_inbox(shard), self._results.receive))
            heard.append(await self._bus.answer(relay.subject(shard), self._routing.answer))
            heard.append(await self._bus.answer_pools(subjects.step_claims(shard), claiming.answer))
        await self._recover(shards)

    async def _let_go(self, shards: Collection[int]) -> None:
        """Shards are another's: forget everything about them, so that nothing of ours is decided there again."""
        for shard in shards:
            for subscription in self._inboxes.pop(shard, ()):
                await subscription.stop()
        self._admission.let_go(shards)
        self._within_budget.let_go(shards)
        for execution in [one for one in self._open if shard_of(one, self._shards) in shards]:
            for flight in self._open.pop(execution).in_flight.values():
                await self._performer.over(Place(execution, flight.path, flight.attempt))
            self._timers.arm(execution, None)
            self._watchers.lost(execution, ShardLost([shard_of(execution, self._shards)]))

    async def _recover(self, shards: Collection[int]) -> None:
        recovered = 0
        async for left in self._store.open_executions(sorted(shards)):
            for state in await self._store.load_all(left):
                if not state.ended and self._routing.is_ours(state.execution):  # still, after this wait
                    self._loop.adopt(state)
            self._forget_idle()
            recovered += len(left)
        if recovered:
            _log.info("executions.recovered", executions=recovered)
            await self._sweeper.sweep()
            await self._performer.catch_up()

    def _forget_idle(self) -> None:
        """Keep memory bounded: executions that only wait are read again when something happens to them."""
        for execution in idle(self._open, keep=self._bounds.open_max):
            del self._open[execution]

    def _wake(self, execution: ExecutionId) -> None:
        def settled(state: ExecutionState) -> None:
            # Also of one that was forgotten meanwhile because it only waits: nothing else would wake it.
            if not state.ended and self._routing.is_ours(execution):
                self._timers.arm(execution, next_wakeup(state))

        def refused(error: AgentFlowError) -> None:
            is_gone = isinstance(error, ShardLost) and not self._routing.is_ours(execution)
            if not is_gone and not isinstance(error, UnknownExecution):
                self._timers.arm_soon(execution)

        self._inbox.put(Arrival(execution, TimeReached(self._stamp()), settled, refused))

    def steps_lost(self, worker: WorkerId, pool: str, steps: Sequence[HeldStep], silent_s: float) -> None:
        """A worker fell silent with these. What of them is ours and still waits for it begins its next attempt."""
        for step in steps:
            state = self._open.get(step.execution_id)
            flight = state.in_flight.get(step.path) if state is not None else None
            if state is None or flight is None or flight.attempt != step.attempt:
                continue
            if not may_act_for(pool, state.tenant):
                continue  # it can only have made that up
            stamp = self._stamp()
            gone = StepFault(WORKER_LOST, f"The worker fell silent {silent_s:.0f} s ago.", retryable=True)
            report = StepReported(stamp, step.path, step.attempt, worker, stamp.at_ms, stamp.at_ms, fault=gone)
            self._inbox.put(Arrival(step.execution_id, report, lambda _: None, lambda _: None))

    def waiting_for(self, pool: str, agents: Collection[str], *, since_before_ms: int) -> list[HeldStep]:
        """Steps of ours that these agents of a pool were given before a moment and have not answered."""
        return [
            HeldStep(execution, flight.path, flight.attempt)
            for execution, state in self._open.items()
            for flight in state.in_flight.values()
            if flight.agent in agents
            and self._pools.of(state.tenant, flight.agent) == pool
            and flight.at_ms <= since_before_ms
            and not self._windows.holds(Place(execution, flight.path, flight.attempt))
        ]

    def _fail_step(self, execution: ExecutionId, command: DispatchStep, fault: StepFault) -> None:
        """A report in the name of a worker that could never be reached."""
        stamp = self._stamp()
        report = StepReported(
            stamp, command.path, command.attempt, WorkerId(SENDER), stamp.at_ms, stamp.at_ms, fault=fault
        )
        self._inbox.put(Arrival(execution, report, lambda _: None, lambda _: self._timers.arm_soon(execution)))

    def _stamp(self) -> Stamp:
        return Stamp(self._clock.now_ms(), self._chance(), self._hears())
