"""The product's own processes, put together as their composition roots do it, on simulated lines.

Everything that decides, commits, sends, sweeps, owns, spools or reports is the real thing. Only what is outside of a
process is not: its database server, its bus, its clock, and the agent that a step runs.
"""

import asyncio
import random
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentflow.bus import subjects
from agentflow.contracts.step import StepRequest
from agentflow.errors import AgentFlowError, Unavailable
from agentflow.execution.events import WorkflowRef
from agentflow.ids import AgentName, TenantId, UlidSource
from agentflow.ports import Startable
from control_plane.lost_workers import care_for_lost_workers
from control_plane.orchestrator.bounds import Bounds
from control_plane.orchestrator.orchestrator import Orchestrator
from control_plane.orchestrator.ownership import Ownership
from control_plane.registry.agents import LiveAgents
from control_plane.service import ControlPlane
from control_plane.storage.admissions import SqlRoom
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.request_keys import SqlRequestKeys
from tests.simulation.model.bus import Broker, SimulatedBus
from tests.simulation.model.chance import Fates
from tests.simulation.model.clients import TENANT
from tests.simulation.model.database import Server, SimulatedDatabase
from tests.simulation.model.loop import SimulatedLoop
from tests.simulation.model.programs import AGENTS, CHILD, program_named, workflow
from worker.agents.agent import StepContext
from worker.mailbox import Mailbox
from worker.reporter import Reporter
from worker.runtime import Runtime, StopRequests
from worker.spool import open_spool

SHARDS = 4
LEASE_S = 3.0
ACK_WAIT_S = 3.0
WORKER_LOST_S = 3.0
RESEND_AFTER_S = 2.0
SPOOL_BYTES = 1_000_000
EPOCH_MS = 1_700_000_000_000
SNAPSHOTS_EVERY = (3, 7, 200)


class SimulatedClock:
    """Of one machine: the wall clock may be wrong and may jump, the other one never does."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic_s(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Machine:
    """A place where a process runs, is killed and started again. What is on its disk and its clock stay."""

    def __init__(self, name: str, *, loop: SimulatedLoop, broker: Broker, fates: Fates, chance: random.Random) -> None:
        self.name = name
        self.loop = loop
        self.broker = broker
        self.fates = fates
        self.chance = chance
        self.clock = SimulatedClock(loop)
        self.process = loop.process(name)
        self.bus = SimulatedBus(broker, self.process)
        self.troubles: list[str] = []
        self.starts = 0
        self.kill()

    @property
    def is_up(self) -> bool:
        return self.process.is_alive

    def start(self) -> None:
        if self.process.is_alive:
            return
        self.starts += 1
        self.process = self.loop.process(f"{self.name}.{self.starts}")
        self.bus = SimulatedBus(self.broker, self.process)
        self.open()
        main = self.loop.spawn(self.process, self.main())
        main.add_done_callback(self._ended, context=self.process.context)

    def open(self) -> None: ...

    async def main(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self.loop.kill(self.process)
        self.bus.is_cut = True
        gone = self.process
        self.loop.outside(self.broker.died, gone, after_s=self.chance.random())

    def _ended(self, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is not None and not isinstance(error, Unavailable):
            self.troubles.append(f"{self.process} ended by itself: {error!r}")
        self.kill()

    def id_source(self) -> UlidSource:
        return UlidSource(self.clock.now_ms, self.chance.getrandbits)


class _Registry:
    """What `ControlPlane.execute` asks of the registry; a reference is the name of a workflow."""

    async def find(self, tenant: TenantId, reference: str) -> Any:
        return _Registered(workflow(reference))

    def check_input(self, found: Any, input: Any) -> None: ...

    async def ref(self, tenant: TenantId, found: Any) -> WorkflowRef:
        ref: WorkflowRef = found.ref
        return ref


class _NoQuotas:
    """An identity whose tenants may have as much as they like."""

    @property
    def tenants(self) -> "_NoQuotas":
        return self

    async def admit_execution(self, tenant: TenantId) -> None: ...


class _Registered:
    def __init__(self, ref: WorkflowRef) -> None:
        self.ref = ref
        self.timeout_ms = 20_000 if ref.name.startswith("grown") else None
        self.concurrency = 2 if ref.name == "steady-4" else None


class ControlPlaneMachine(Machine):
    def __init__(self, name: str, server: Server, *, snapshot_every: int, **given: Any) -> None:
        self._server = server
        self._snapshot_every = snapshot_every
        super().__init__(name, **given)
        self.database = SimulatedDatabase(server, self.loop, self.fates)
        self.service: ControlPlane | None = None
        self.orchestrator: Orchestrator | None = None
        self._leaving = asyncio.Event()

    def open(self) -> None:
        self.database = SimulatedDatabase(self._server, self.loop, self.fates)
        self.service = None
        self.orchestrator = None
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """SIGTERM: in good order."""
        self.loop.inside(self.process, self._leaving.set)

    async def main(self) -> None:
        leaving, db, bus, clock, ids = self._leaving, self.database, self.bus, self.clock, self.id_source()
        agents = LiveAgents(clock, lost_after_s=WORKER_LOST_S)
        await bus.listen_pools(subjects.HEARTBEATS, agents.heard)

        async def program_of(tenant: TenantId, ref: WorkflowRef) -> Any:
            return program_named(ref.name)

        async def resolve(tenant: TenantId, name: str, version: str, given: Any) -> Startable:
            return Startable(CHILD)

        ownership = Ownership(
            leases=SqlShardLeases(db),
            bus=bus,
            clock=clock,
            replica=ids.server(),
            shards=SHARDS,
            lease_s=LEASE_S,
            alone=False,
        )
        store = SqlEventStore(db, snapshot_every=self._snapshot_every)
        orchestrator = self.orchestrator = Orchestrator(
            store=store,
            bus=bus,
            program_of=program_of,
            resolve=resolve,
            clock=clock,
            ids=ids,
            chance=self.chance.random,
            shards=SHARDS,
            ownership=ownership,
            resend_after_s=RESEND_AFTER_S,
            environment={},
            bounds=Bounds(room=SqlRoom(db, clock), open_max=2, window=3),  # so small that they are always reached
        )
        async with orchestrator.running(), care_for_lost_workers(agents, orchestrator, bus, clock):
            parts = {
                "registry": _Registry(),
                "identity": _NoQuotas(),
                "orchestrator": orchestrator,
                "events": store,
                "agents": agents,
                "new_request_id": ids.ulid,
                "now_ms": clock.now_ms,
                "request_keys": SqlRequestKeys(db, clock),
            }
            unused = dict.fromkeys(each.name for each in fields(ControlPlane))
            self.service = ControlPlane(**(unused | parts))
            await leaving.wait()
            self.service = None


class SimulatedAgent:
    """Does a step as the day has it, and says so to `ran` when it begins."""

    def __init__(self, machine: "WorkerMachine", perform: Callable[["WorkerMachine", StepRequest], Any]) -> None:
        self._machine = machine
        self._perform = perform

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        return await self._perform(self._machine, request)

    async def close(self) -> None: ...


class WorkerMachine(Machine):
    def __init__(self, name: str, perform: Callable[["WorkerMachine", StepRequest], Any], **given: Any) -> None:
        self._perform = perform
        self._disk = tempfile.TemporaryDirectory(prefix="agentflow-spool-", dir=_memory())
        super().__init__(name, **given)
        self.spool: Any = None
        self.reporter: Reporter | None = None
        self.mailboxes: list[Mailbox] = []
        self._stop = StopRequests()

    def kill(self) -> None:
        super().kill()
        spool = getattr(self, "spool", None)
        if spool is not None:
            spool._file.close()  # as the kernel does for the dead, so that the next one gets the lock

    def open(self) -> None:
        self.spool = open_spool(Path(self._disk.name), bytes_max=SPOOL_BYTES)
        self._stop = StopRequests()

    def leave(self) -> None:
        self.loop.inside(self.process, self._stop.ask)

    def remove_disk(self) -> None:
        self._disk.cleanup()

    async def main(self) -> None:
        clock, ids, stop = self.clock, self.id_source(), self._stop
        worker = ids.worker()
        reporter = self.reporter = Reporter(bus=self.bus, clock=clock, spool=self.spool)
        mailboxes = self.mailboxes = [
            Mailbox(
                AgentName(name),
                SimulatedAgent(self, self._perform),
                pool=TENANT,
                concurrency=3,
                ack_wait_s=ACK_WAIT_S,
                bus=self.bus,
                reporter=reporter,
                worker=worker,
                ids=ids,
                clock=clock,
                spool_first=name == "undoer",
            )
            for name in AGENTS
        ]
        runtime = Runtime(
            mailboxes, bus=self.bus, reporter=reporter, clock=clock, worker=worker, pool=TENANT, drain_s=1.0
        )
        await runtime.serve(stop)


def _memory() -> str | None:
    """Where files cost no disk, if there is such a place: what is tested is the order of writes, not their speed."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def is_unknown(error: AgentFlowError) -> bool:
    """Whether a request that ended so may have been accepted all the same."""
    return error.retryable
