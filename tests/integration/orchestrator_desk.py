"""An orchestrator on a real database and a real bus whose answers can be lost, and programs for it to run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, seal
from agentflow.contracts.pools import SHARED, Pools
from agentflow.contracts.step import StepRequest, StepResult
from agentflow.execution import messages
from agentflow.execution.events import ExecutionCompleted, Retry, StepSucceeded, WorkflowRef
from agentflow.execution.messages import Stamp
from agentflow.execution.program import AwaitSignal, Fail, Finish, Halt, Remember, RunStep, StartChild
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import AgentName, ExecutionId, TenantId, UlidSource, WorkerId, WorkflowId, derived_execution
from agentflow.ports import BusUnavailable, Delivery, NewEvents, Startable, StorageUnavailable
from control_plane.orchestrator.bounds import NO_BOUNDS, Bounds
from control_plane.orchestrator.orchestrator import Orchestrator
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


async def children_of(desk: Desk, parent: ExecutionId) -> list[ExecutionId]:
    """Every execution that is stored beside its parent."""
    state = await desk.orchestrator.state(TENANT, parent)
    return [derived_execution(state.started_at_ms, f"{parent}/{key}") for key in ("left", "right")]
