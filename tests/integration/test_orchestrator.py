"""The orchestrator against a real database and a real bus, with answers lost at the worst moments."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from agentflow import limits
from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, seal
from agentflow.contracts.pools import SHARED, Pools
from agentflow.contracts.step import StepFault, StepRequest, StepResult
from agentflow.errors import Unavailable
from agentflow.execution import messages
from agentflow.execution.events import (
    ChildEnded,
    ExecutionCompleted,
    ExecutionStarted,
    Retry,
    SignalReceived,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
)
from agentflow.execution.messages import Stamp
from agentflow.execution.program import AwaitSignal, Fail, Finish, Halt, Remember, RunStep, StartChild
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import (
    AgentName,
    ExecutionId,
    StepPath,
    TenantId,
    UlidSource,
    WorkerId,
    WorkflowId,
    derived_execution,
)
from agentflow.ports import BusUnavailable, Delivery, NewEvents, Startable, StorageUnavailable, VersionConflict
from agentflow.testing import eventually
from control_plane.orchestrator.bounds import NO_BOUNDS, Bounds
from control_plane.orchestrator.orchestrator import (
    ExecutionEnded,
    ExecutionNotFound,
    NotFailed,
    Orchestrator,
    TooManySignals,
)
from control_plane.orchestrator.ownership import Ownership
from control_plane.registry.workflows import WorkflowNotFound
from control_plane.storage.database import database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

TENANT = TenantId("acme")
WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "line", "1.0.0", "digest")
FAMILY = WorkflowRef(WorkflowId("wf_2"), "family", "1.0.0", "digest")
PATIENT = WorkflowRef(WorkflowId("wf_3"), "patient", "1.0.0", "digest")
AGENT = AgentName("echo")
ALL_SHARED = Pools(["*"])
MAILBOX = subjects.agent_mailbox(SHARED, AGENT, concurrency=8, ack_wait_s=2)


class Line:
    """`first`, then `second`; a failure ends it with that fault."""

    def begin(self, run):
        return (RunStep("first", "first", AGENT, None, run.input, 60_000, Retry()),)

    def advance(self, run, outcome):
        if outcome.fault is not None:
            return (Fail(outcome.fault),)
        if outcome.name == "first":
            return (RunStep("second", "second", AGENT, None, outcome.output, 60_000, Retry()),)
        return (Finish(outcome.output),)


class Family:
    """Two children at once, each a `line`; their outputs together are its own. A child that fails ends it."""

    def begin(self, run):
        return tuple(StartChild(key, "line", "^1.0", {"of": key}) for key in ("left", "right"))

    def advance(self, run, outcome):
        if outcome.fault is not None:
            return (Halt("right" if outcome.key == "left" else "left"), Fail(outcome.fault))
        heard = {**run.memory, outcome.key: outcome.output}
        return (Finish(heard),) if len(heard) == 2 else (Remember({outcome.key: outcome.output}),)


class Patient:
    """Waits for the signal `go`, then does its step."""

    def begin(self, run):
        return (AwaitSignal("go", "go"),)

    def advance(self, run, outcome):
        if outcome.key == "go":
            return (RunStep("first", "first", AGENT, None, outcome.payload, 60_000, Retry()),)
        return (Fail(outcome.fault),) if outcome.fault is not None else (Finish(outcome.output),)


class DoubtfulStore:
    """The real store; on a chosen append the answer is lost, after the commit or instead of it."""

    def __init__(self, store: SqlEventStore) -> None:
        self._store = store
        self.lose: Callable[[Sequence[NewEvents]], str | None] = lambda batch: None

    async def append(self, batch: Sequence[NewEvents], epochs: Mapping[int, int]) -> None:
        how = self.lose(batch)
        if how is not None:
            self.lose = lambda batch: None
        if how != "before":
            await self._store.append(batch, epochs)
        if how is not None:
            raise StorageUnavailable("the answer was lost")

    def __getattr__(self, name: str):
        return getattr(self._store, name)


class LossyBus:
    """The real bus, which now and then loses what it was given without saying so."""

    def __init__(self, bus: JetStreamBus) -> None:
        self._bus = bus
        self.losing = 0
        self.refusing = 0  # subscriptions, from the next one on

    async def subscribe(self, consumer, handler):
        if self.refusing:
            self.refusing -= 1
            raise BusUnavailable("it is away")
        return await self._bus.subscribe(consumer, handler)

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        if subject.startswith("agents.") and self.losing:
            self.losing -= 1
            return
        await self._bus.publish(subject, message, dedup_id=dedup_id, confirm=confirm)

    def __getattr__(self, name: str):
        return getattr(self._bus, name)


@dataclass
class Worker:
    """Answers every step with its own input, unless it is told to hold."""

    bus: JetStreamBus
    ids: UlidSource
    pool: str = SHARED
    ran: list[StepRequest] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def receive(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._answer(delivery))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, delivery: Delivery) -> None:
        request = delivery.message.read(StepRequest)
        self.ran.append(request)
        result = StepResult(
            request.execution_id, request.path, request.attempt, WorkerId("wrk_test"), 1, 2, request.input
        )
        message = seal(
            id=self.ids.message(),
            trace_id=delivery.message.trace_id,
            span_id="0" * 16,
            sender=AGENT,
            to=request.workflow,
            type="response",
            payload=msgspec.to_builtins(result),
            metadata={},
            at_ms=1,
        )
        subject = subjects.workflow_in(request.workflow, request.shard, self.pool)
        await self.bus.publish(subject, message, dedup_id=f"{message.id}", confirm=True)
        delivery.ack()


@dataclass
class Desk:
    store: DoubtfulStore
    bus: LossyBus
    worker: Worker
    orchestrator: Orchestrator
    epochs: Mapping[int, int]

    async def start(self, input=None, workflow: WorkflowRef = WORKFLOW) -> ExecutionId:
        return (await self.orchestrator.start(TENANT, workflow, input, timeout_ms=None)).execution

    async def asked(self, execution: ExecutionId, wanted: Callable[[Stamp], messages.Request]) -> ExecutionState:
        return await self.orchestrator.request(TENANT, execution, wanted)

    async def ended(self, execution: ExecutionId) -> ExecutionState:
        state = await self.orchestrator.wait(TENANT, execution, lambda state: state.ended, within_s=15)
        assert state.ended, state
        return state

    async def story(self, execution: ExecutionId) -> list[type]:
        stored = await self.store.read(TENANT, execution)
        assert [event.version for event in stored] == list(range(1, len(stored) + 1))
        return [type(event.event) for event in stored]


@pytest.fixture
def desk(nats, tmp_path: Path):
    @asynccontextmanager
    async def opened(
        *,
        working=True,
        missing: tuple[str, ...] = (),
        lease_s=30.0,
        alone=True,
        bounds: Bounds = NO_BOUNDS,
        pools=ALL_SHARED,
    ) -> AsyncIterator[Desk]:
        clock = SystemClock()
        ids = UlidSource(clock.now_ms)

        async def program_of(tenant, workflow):
            return {"line": Line, "family": Family, "patient": Patient}[workflow.name]()

        async def resolve(tenant, name, constraint, input):
            if name in missing:
                raise WorkflowNotFound(name, hint="It is gone.")
            return Startable(WORKFLOW)

        async with database(f"sqlite:///{tmp_path}/agentflow.db") as db, jetstream(nats.url, name="test") as bus:
            await upgrade(db)
            store, lossy, worker = DoubtfulStore(SqlEventStore(db)), LossyBus(bus), Worker(bus, ids)
            ownership = Ownership(
                leases=SqlShardLeases(db),
                bus=lossy,
                clock=clock,
                replica=ids.server(),
                shards=16,
                lease_s=lease_s,
                alone=alone,
            )
            orchestrator = Orchestrator(
                store=store,
                bus=lossy,
                program_of=program_of,
                resolve=resolve,
                clock=clock,
                ids=ids,
                chance=lambda: 0.5,
                shards=16,
                ownership=ownership,
                resend_after_s=0.5,
                environment={"REGION": "eu"},
                bounds=bounds,
                pools=pools,
            )
            async with orchestrator.running():
                if working:
                    await bus.subscribe(MAILBOX, worker.receive)
                yield Desk(store, lossy, worker, orchestrator, ownership.epochs)

    return opened


async def completes_with_each_outcome_once(desk: Desk, execution: ExecutionId) -> None:
    assert (await desk.ended(execution)).status is Status.COMPLETED
    assert Counter(await desk.story(execution))[StepSucceeded] == 2
    assert (await desk.story(execution))[-1] is ExecutionCompleted


async def test_an_execution_is_driven_to_its_end(desk):
    async with desk() as here:
        execution = await here.start({"n": 1})

        await completes_with_each_outcome_once(here, execution)
        assert (await here.ended(execution)).output == {"n": 1}
        keys = {request.effect_key for request in here.worker.ran}
        assert keys == {f"acme/{execution}/first", f"acme/{execution}/second"}


async def test_a_start_whose_commit_got_no_answer_still_runs_to_its_end(desk):
    async with desk() as here:
        seen: list[ExecutionId] = []

        def lose_the_first(batch):
            seen.extend(new.execution for new in batch)
            return "after"

        here.store.lose = lose_the_first
        with pytest.raises(Unavailable):
            await here.start()

        await completes_with_each_outcome_once(here, seen[0])


async def test_an_idle_database_gets_the_first_of_many_decisions_at_once(desk):
    async with desk() as here:
        sizes: list[int] = []
        here.store.lose = lambda batch: sizes.append(len(batch))
        many = 3 * limits.COMMIT_FIRST_MAX

        await asyncio.gather(*(here.orchestrator.start(TENANT, PATIENT, {}, timeout_ms=None) for _ in range(many)))

        assert sum(sizes) == many
        assert sizes[0] <= limits.COMMIT_FIRST_MAX, "the others are decided while it writes"
        assert len(sizes) <= 4, "and go together"


async def test_a_start_that_was_never_committed_leaves_nothing_behind(desk):
    async with desk() as here:
        seen: list[ExecutionId] = []

        def refuse_the_first(batch):
            seen.extend(new.execution for new in batch)
            return "before"

        here.store.lose = refuse_the_first
        with pytest.raises(Unavailable):
            await here.start()
        after = await here.start()

        await completes_with_each_outcome_once(here, after)
        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.state(TENANT, seen[0])
        assert {request.execution_id for request in here.worker.ran} == {after}


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_result_whose_commit_got_no_answer_is_recorded_once(desk, how):
    async with desk() as here:

        def lose_the_first_result(batch):
            return how if any(isinstance(event, StepSucceeded) for new in batch for event in new.events) else None

        here.store.lose = lose_the_first_result
        execution = await here.start()

        await completes_with_each_outcome_once(here, execution)


async def test_a_step_that_the_bus_lost_is_sent_again(desk):
    async with desk() as here:
        here.bus.losing = 2

        execution = await here.start()

        await completes_with_each_outcome_once(here, execution)


async def test_a_wiped_bus_costs_time_but_no_execution(desk, nats):
    async with desk(working=False) as here:
        execution = await here.start()
        await eventually(lambda: _waiting(here.bus), within_s=5)

        await nats.restart(wipe=True)

        async def subscribed() -> bool:
            try:
                await here.bus.subscribe(MAILBOX, here.worker.receive)
            except Unavailable:
                return False
            return True

        await eventually(subscribed, within_s=10)
        await completes_with_each_outcome_once(here, execution)


async def _waiting(bus: LossyBus) -> bool:
    return (await bus.backlog(MAILBOX)).waiting == 1


async def test_what_was_open_is_taken_up_by_the_next_owner(desk):
    async with desk(working=False) as here:
        here.bus.losing = 10  # the first owner commits, and dies before anything is sent
        execution = await here.start()

    async with desk() as here:
        await completes_with_each_outcome_once(here, execution)


async def test_a_second_writer_makes_the_owner_read_again_and_go_on(desk):
    async with desk(working=False) as here:
        execution = await here.start()
        state = await here.orchestrator.state(TENANT, execution)
        first = state.in_flight["first"]
        stolen = StepSucceeded(first.at_ms, first.path, 1, "by another owner", WorkerId("wrk_2"), 1, 2)
        after = StepScheduled(first.at_ms, StepPath("second"), "second", 1, AGENT, None, 60_000)
        elsewhere = NewEvents(execution, TENANT, 0, state.version, (stolen, after), state)
        await here.store.append([elsewhere], here.epochs)

        with pytest.raises(VersionConflict):
            await here.store.append([elsewhere], here.epochs)
        await here.bus.subscribe(MAILBOX, here.worker.receive)

        await completes_with_each_outcome_once(here, execution)


async def test_a_step_too_large_to_send_fails_at_once_with_the_reason(desk):
    async with desk() as here:
        execution = await here.start({"text": "x" * 2_000_000})

        state = await here.ended(execution)

        assert state.status is Status.FAILED
        assert state.ended_at_ms is not None
        assert state.ended_at_ms - state.started_at_ms <= 1_000
        assert isinstance(state.fault, StepFault)
        assert state.fault.code == "not_sendable"


async def test_an_execution_of_another_tenant_does_not_exist(desk):
    async with desk() as here:
        execution = await here.start()

        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.state(TenantId("other"), execution)


async def children_of(desk: Desk, parent: ExecutionId) -> list[ExecutionId]:
    """Every execution that is stored beside its parent."""
    state = await desk.orchestrator.state(TENANT, parent)
    return [derived_execution(state.started_at_ms, f"{parent}/{key}") for key in ("left", "right")]


async def test_children_run_beside_each_other_and_their_ends_come_back(desk):
    async with desk() as here:
        parent = await here.start(workflow=FAMILY)

        state = await here.ended(parent)

        assert state.status is Status.COMPLETED
        assert state.output == {"left": {"of": "left"}, "right": {"of": "right"}}
        for child in await children_of(here, parent):
            born = await here.orchestrator.state(TENANT, child)
            assert born.parent is not None
            assert (born.parent.execution, born.trace) == (parent, state.trace)


async def test_a_family_whose_owner_died_is_taken_up_whole_and_no_child_is_born_twice(desk):
    async with desk(working=False) as here:
        here.bus.losing = 10
        parent = await here.start(workflow=FAMILY)

    async with desk() as here:
        assert (await here.ended(parent)).status is Status.COMPLETED
        for child in await children_of(here, parent):
            assert Counter(await here.story(child))[ExecutionStarted] == 1
            assert Counter(await here.story(child))[StepSucceeded] == 2


@pytest.mark.parametrize("how", ["before", "after"])
async def test_an_end_of_a_child_whose_commit_got_no_answer_is_told_once(desk, how):
    async with desk() as here:

        def lose_the_first_end(batch):
            return how if any(isinstance(event, ChildEnded) for new in batch for event in new.events) else None

        here.store.lose = lose_the_first_end
        parent = await here.start(workflow=FAMILY)

        assert (await here.ended(parent)).status is Status.COMPLETED
        assert Counter(await here.story(parent))[ChildEnded] == 2


async def test_a_child_that_cannot_be_started_fails_its_parent_with_the_reason(desk):
    async with desk(missing=("line",)) as here:
        state = await here.ended(await here.start(workflow=FAMILY))

        assert state.status is Status.FAILED
        assert state.fault is not None
        assert state.fault.code == "child_not_started"
        assert "There is no workflow `line`" in state.fault.message


async def test_cancelling_a_parent_cancels_its_children(desk):
    async with desk(working=False) as here:
        parent = await here.start(workflow=FAMILY)
        children = await children_of(here, parent)
        await eventually(lambda: all_open(here, children), within_s=5)

        await here.asked(parent, lambda stamp: messages.Cancel(stamp, "c1", "no longer wanted"))

        assert (await here.ended(parent)).status is Status.CANCELLED
        for child in children:
            assert (await here.ended(child)).status is Status.CANCELLED


async def all_open(desk: Desk, executions: list[ExecutionId]) -> bool:
    try:
        return all([not (await desk.orchestrator.state(TENANT, one)).ended for one in executions])
    except ExecutionNotFound:
        return False


async def test_a_signal_is_taken_once_however_often_it_is_sent(desk):
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        for _ in range(3):
            with suppress(ExecutionEnded):
                await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", {"n": 7}))

        assert (await here.ended(execution)).output == {"n": 7}
        assert Counter(await here.story(execution))[SignalReceived] == 1


async def test_a_signal_that_can_no_longer_be_kept_is_refused_and_leaves_no_trace(desk, monkeypatch):
    monkeypatch.setattr(limits, "SIGNALS_KEPT_MAX", 2)
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        for number in range(2):
            await here.asked(execution, lambda stamp, n=number: messages.Signal(stamp, f"e{n}", "early", n))

        with pytest.raises(TooManySignals):
            await here.asked(execution, lambda stamp: messages.Signal(stamp, "e2", "early", 2))
        await here.asked(execution, lambda stamp: messages.Signal(stamp, "e1", "early", 1))  # sent again: taken before
        await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", {"n": 7}))

        assert (await here.ended(execution)).output == {"n": 7}
        assert Counter(await here.story(execution))[SignalReceived] == 3


async def test_a_paused_execution_goes_on_where_it_was(desk):
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        paused = await here.asked(execution, lambda stamp: messages.Pause(stamp, "p1"))
        held = await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", 1))

        assert (paused.status, held.status, len(held.in_flight)) == (Status.PAUSED, Status.PAUSED, 0)
        await here.asked(execution, lambda stamp: messages.Resume(stamp, "r1"))
        assert (await here.ended(execution)).output == 1


async def test_what_is_asked_of_an_execution_in_the_wrong_state_is_refused(desk):
    async with desk() as here:
        execution = await here.start()
        await here.ended(execution)

        with pytest.raises(ExecutionEnded):
            await here.asked(execution, lambda stamp: messages.Pause(stamp, "p1"))
        with pytest.raises(NotFailed):
            await here.asked(execution, lambda stamp: messages.RetryFailed(stamp, "r1"))
        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.request(TenantId("other"), execution, lambda stamp: messages.Resume(stamp, "r1"))
