"""The group-commit loop: take what has arrived, decide, commit all of it in one transaction, then send.

The only code that changes an execution. While one batch is being written the next is decided, for other executions:
what concerns one whose events are being written waits until they are. So nothing is ever decided upon what may not
have happened. Memory is replaced only after the commit; when a commit fails or its outcome is unknown, memory of the
executions in it is dropped and the next message reads the database again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.contracts.pools import may_act_for
from agentflow.errors import AgentFlowError, Bug, OverBudget
from agentflow.execution.decide import Decision
from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import Beginning, ExecutionMessage, Move, StepReported
from agentflow.execution.program import Program
from agentflow.execution.state import ExecutionState, next_wakeup, pending_commands
from agentflow.ids import ExecutionId, TenantId, shard_of
from agentflow.ports import EventStore, NewEvents, Observation, ShardLost, Shelf, VersionConflict
from control_plane.orchestrator.batch import Batch, Draft
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.deciding import decision_for
from control_plane.orchestrator.feed import Feed
from control_plane.orchestrator.inbox import Arrival, Inbox
from control_plane.orchestrator.performer import Performer
from control_plane.orchestrator.timers import Timers
from control_plane.orchestrator.watchers import Watchers
from control_plane.orchestrator.within_budget import WithinBudget

_log = structlog.get_logger(__name__)

ProgramOf = Callable[[TenantId, WorkflowRef], Awaitable[Program]]


class CommitLoop:
    def __init__(
        self,
        *,
        inbox: Inbox,
        store: EventStore,
        program_of: ProgramOf,
        feed: Feed,
        timers: Timers,
        performer: Performer,
        watchers: Watchers,
        open_executions: dict[ExecutionId, ExecutionState],
        shards: int,
        lost: Callable[[Sequence[int]], Awaitable[None]],
        epochs: Mapping[int, int],
        is_current: Callable[[], bool],
        limited: Callable[[ExecutionState], None],
        within_budget: WithinBudget,
        claims: ClaimCheck | None = None,
    ) -> None:
        self._inbox = inbox
        self._store = store
        self._program_of = program_of
        self._feed = feed
        self._timers = timers
        self._performer = performer
        self._watchers = watchers
        self._open = open_executions
        self._shards = shards
        self._epochs = epochs
        self._is_current = is_current
        self._claims = claims
        self._lost = lost
        self._limited = limited
        self._within_budget = within_budget
        self._budgets = within_budget.budgets

    def adopt(self, state: ExecutionState) -> None:
        """Take up an execution known only from the database: nobody here remembers what was sent for it."""
        self._open[state.execution] = state
        self._timers.arm(state.execution, next_wakeup(state))
        if state.queue is not None and state.queue.limited:
            self._limited(state)
        self._within_budget.moved(state)
        for command in pending_commands(state):
            self._performer.suspect(state.execution, command)

    async def run(self) -> None:
        batch = Batch()
        written: Batch | None = None
        try:
            while True:
                await self._fill(batch, written)
                over, written = written, None
                is_durable = over is not None and await self._is_durable(over, batch)
                if batch.decided:
                    batch, written = Batch(), batch
                    written.write(self._append(written), then=self._inbox.stir)
                    await asyncio.sleep(0)  # first it goes out: the database works while we send
                if over is not None and is_durable:
                    await self._tell(over)
                if written is not None:
                    for draft in written.moved:
                        self._performer.prepare(draft)
        finally:
            if written is not None:
                await written.give_up()

    async def _fill(self, batch: Batch, written: Batch | None) -> None:
        """Decides what arrives, until what is being written is over, or there is something and nothing is written.

        A database that has nothing to do gets the first of many: the others are decided while it writes.
        """
        most = limits.COMMIT_FIRST_MAX if written is None else limits.COMMIT_BATCH_MAX
        while True:
            for arrival in self._inbox.take(max(0, most - len(batch.decided))):
                if written is not None and arrival.execution in written.drafts:
                    written.behind.append(arrival)
                else:
                    await self._decide(arrival, batch)
            if written.is_over if written is not None else batch.decided:
                return
            await self._inbox.stirred()

    async def _append(self, batch: Batch) -> None:
        batch.epochs = dict(self._epochs)
        if moved := batch.moved:
            await self._store.append([self._new_events(draft) for draft in moved], batch.epochs)

    async def _is_durable(self, over: Batch, batch: Batch) -> bool:
        """Replaces memory, or drops it. Whoever had to wait for the outcome is decided next, in the new batch."""
        again = over.behind
        is_durable = False
        try:
            over.result()
            for draft in over.moved:
                self._remember(draft, over.epochs)
            is_durable = True
        except ShardLost as lost:
            again = [*await self._without(lost, over.decided), *again]
        except AgentFlowError as error:
            self._forget(over, error)
        for draft in over.drafts.values():
            for counted in draft.counted:
                self._budgets.settled(counted, durable=is_durable)
        for arrival in again:
            await self._decide(arrival, batch)
        return is_durable

    def _forget(self, over: Batch, error: AgentFlowError) -> None:
        _log.warning("commit.failed", executions=len(over.moved), reason=error.message)
        for draft in over.moved:
            # The commit may have happened all the same: forget, and look again in the database.
            self._open.pop(draft.state.execution, None)
            self._timers.arm_soon(draft.state.execution)
        for arrival in over.decided:
            arrival.refused(error)

    async def _without(self, lost: ShardLost, decided: list[Arrival]) -> list[Arrival]:
        """Some of the batch is another owner's by now, and nothing of it was written: the rest is decided again."""
        await self._lost(lost.shards)
        rest = []
        for arrival in decided:
            if shard_of(arrival.execution, self._shards) in lost.shards:
                arrival.refused(lost)
            else:
                rest.append(arrival)
        return rest

    async def _tell(self, over: Batch) -> None:
        for draft in over.moved:
            await self._perform(draft, is_ours=self._is_held(draft.state.execution, over.epochs))
        for arrival in over.decided:
            draft = over.drafts[arrival.execution]
            if draft.events or (self._epochs.get(draft.shard) == draft.epoch and self._is_current()):
                arrival.settled(draft.state)
            else:  # nothing was written that could have been refused: another owner may know better
                arrival.refused(ShardLost([draft.shard]))

    async def _decide(self, arrival: Arrival, batch: Batch) -> None:
        """Adds to the execution's draft; where the message cannot be decided, its sender is told."""
        try:
            draft = batch.drafts.get(arrival.execution)
            if draft is None:
                draft = batch.drafts[arrival.execution] = await self._load(arrival)
            _ensure_of_tenant(arrival, draft.state)
            _ensure_unchanged(arrival, draft.state)
            decision = await self._decision(arrival, arrival.message, draft.state)
            cost = _cost(arrival, decision) if arrival.usage else None
            if cost is not None:
                self._count(draft, decision.state, cost)
            if self._budgets.short:
                again = partial(self._decided_again, arrival)
                decision = await self._within_budget.decision(draft.state, arrival.message, decision, again)
        except (ShardLost, VersionConflict, OverBudget) as refusal:
            arrival.refused(refusal)  # of a lost shard, whoever owns it now hears by other ways
            return
        except AgentFlowError as error:
            _log.error("message.undecided", execution=arrival.execution, code=error.code, reason=error.message)
            arrival.refused(error)
            return
        except Exception as error:  # noqa: BLE001
            # A fault in a program or in our rules must not stop the executions beside it.
            _log.exception("message.undecided", execution=arrival.execution)
            arrival.refused(Bug(f"Deciding about {arrival.execution} failed: {type(error).__name__}: {error}."))
            return
        draft.state = decision.state
        draft.events += decision.events
        draft.commands += decision.commands
        draft.back = arrival.back or draft.back
        if arrival.audit is not None and decision.events:  # what changed nothing is put on record by who asked
            draft.audits.append(arrival.audit)
        if cost is not None:
            draft.costs.append(cost)
        batch.decided.append(arrival)

    async def _decision(self, arrival: Arrival, message: ExecutionMessage, state: ExecutionState) -> Decision:
        program = await self._program(arrival, state)
        tenant = message.tenant if isinstance(message, Beginning) else state.tenant
        return await decision_for(state, message, program, self._claims, Shelf(tenant, arrival.execution))

    async def _decided_again(self, arrival: Arrival, state: ExecutionState, message: ExecutionMessage) -> Decision:
        return await self._decision(arrival, message, state)

    def _count(self, draft: Draft, state: ExecutionState, cost: Observation) -> None:
        workflow = "" if state.workflow is None else state.workflow.name
        draft.counted.append(self._budgets.decided(state.tenant, workflow, cost.at_ms, cost.usage))

    async def _load(self, arrival: Arrival) -> Draft:
        shard = shard_of(arrival.execution, self._shards)
        epoch = self._epochs.get(shard)
        if epoch is None:
            raise ShardLost([shard])
        state = self._open.get(arrival.execution)
        if state is None and isinstance(arrival.message, Beginning) and not arrival.again:
            state = ExecutionState()  # its id was made for this start: nothing can be stored under it
        if state is None:
            state = await self._store.load(arrival.execution)
            if self._epochs.get(shard) != epoch:
                raise ShardLost([shard])  # what was read may be old already
            if state is None and isinstance(arrival.message, Beginning):
                state = ExecutionState()
            elif state is None:
                raise UnknownExecution(arrival.execution)
            elif not state.ended:
                self.adopt(state)
            else:
                self._performer.ended(state)  # whoever committed that may not have come to tell it
        return Draft(shard, epoch, state, state)

    async def _program(self, arrival: Arrival, state: ExecutionState) -> Program:
        if isinstance(arrival.message, Beginning):
            return await self._program_of(arrival.message.tenant, arrival.message.workflow)
        if state.workflow is None:
            raise UnknownExecution(arrival.execution)
        if isinstance(arrival.message, Move):  # who is to go on with it says whether it can
            return await self._program_of(state.tenant, arrival.message.workflow)
        return await self._program_of(state.tenant, state.workflow)

    def _new_events(self, draft: Draft) -> NewEvents:
        state = draft.state
        return NewEvents(
            execution=state.execution,
            tenant=state.tenant,
            shard=draft.shard,
            after_version=draft.before.version,
            events=tuple(draft.events),
            state=state,
            open_tasks=tuple(task.path for task in draft.before.tasks.values()) if state.ended else (),
            costs=tuple(draft.costs),
            audits=tuple(draft.audits),
        )

    def _is_held(self, execution: ExecutionId, epochs: Mapping[int, int]) -> bool:
        shard = shard_of(execution, self._shards)
        return shard in epochs and self._epochs.get(shard) == epochs[shard]

    def _remember(self, draft: Draft, epochs: Mapping[int, int]) -> None:
        """What is durable, but only while nobody else can move it on."""
        state = draft.state
        if self._is_held(state.execution, epochs):
            self._open.pop(state.execution, None)  # whoever moved last is forgotten last (see `idle`)
            if not state.ended:
                self._open[state.execution] = state
            self._timers.arm(state.execution, next_wakeup(state))
            self._within_budget.moved(state)

    async def _perform(self, draft: Draft, *, is_ours: bool) -> None:
        """Durable, so it is sent and told in any case."""
        state = draft.state
        await self._performer.settled(draft.before, state, draft.events)
        for command in draft.commands:
            await self._performer.perform(draft, command)
        self._feed.tell(state)
        if (is_ours or state.ended) and state.queue is not None and state.queue.limited:
            self._limited(state)
        if state.ended:
            self._performer.ended(state)
        self._watchers.committed(state)


def _cost(arrival: Arrival, decision: Decision) -> Observation | None:
    """What is committed with a result; what was told of an attempt that nobody waited for is not."""
    told = arrival.message
    if not decision.events or not isinstance(told, StepReported):
        return None
    return Observation(told.path, told.attempt, told.finished_at_ms, arrival.usage)


def _ensure_of_tenant(arrival: Arrival, state: ExecutionState) -> None:
    if arrival.pool is not None and not may_act_for(arrival.pool, state.tenant):
        raise UnknownExecution(arrival.execution)


def _ensure_unchanged(arrival: Arrival, state: ExecutionState) -> None:
    """What was wanted of an execution as its sender saw it; sent again after it was done, it is still done."""
    if arrival.only_at is None or arrival.only_at == state.version:
        return
    if getattr(arrival.message, "id", None) not in state.seen:
        raise VersionConflict(arrival.execution, arrival.only_at)
