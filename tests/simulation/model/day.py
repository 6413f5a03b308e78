"""One day, all of it from a seed: who starts what, what breaks when, and what the history says in the evening.

`live(seed)` is the whole of it. The same seed gives the same day, down to its trace.
"""

import gc
import hashlib
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import structlog

from agentflow.contracts.step import StepFault, StepRequest
from agentflow.execution import events as happened
from agentflow.execution.events import decode
from agentflow.execution.state import Status
from agentflow.ids import TenantId, shard_of
from agentflow.limits import BUS_CONFIRM_S
from control_plane.storage.state_snapshots import unpacked
from tests.invariants.history import Effect, Held, History, Kept, Listed, Recorded
from tests.invariants.rules import Violation, violations
from tests.simulation.model.bus import Broker
from tests.simulation.model.chance import Fates, weather
from tests.simulation.model.clients import Clients
from tests.simulation.model.database import Server
from tests.simulation.model.loop import SimulatedLoop, StuckLoop
from tests.simulation.model.nemesis import Nemesis
from tests.simulation.model.processes import (
    EPOCH_MS,
    SHARDS,
    SNAPSHOTS_EVERY,
    ControlPlaneMachine,
    Machine,
    WorkerMachine,
)
from tests.simulation.model.programs import program_named
from tests.unit.agentflow.execution.replayed import replayed
from worker.outcome import StepFailed

TENANT = TenantId("acme")
TROUBLE_S = 8.0  # for so long things break; then nothing does any more
PATIENCE_S = 120.0  # after that everything must have ended
SETTLE_S = 4.0  # and what was set up for it must be gone

_FAULTS = [StepFault("boom", "x", retryable=True), StepFault("net_down", "x"), StepFault("bad", "x")]


class Day:
    def __init__(self, seed: int, server: Server, *, ways: tuple[str, ...] = (), keep_trace: bool = False) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = SimulatedLoop(random.Random(self.chance.getrandbits(64)))
        self.fates = Fates(random.Random(self.chance.getrandbits(64)), weather(self.chance))
        self.lines: list[str] | None = [] if keep_trace else None
        self._hash = hashlib.blake2b(digest_size=12)
        self.effects: list[Effect] = []
        self.server = server
        server.wipe(self.loop.time)
        self.broker = Broker(self.loop, self.fates, self.trace)
        every = self.chance.choice(SNAPSHOTS_EVERY)
        self.planes = [
            ControlPlaneMachine(f"plane-{at}", server, snapshot_every=every, **self._place())
            for at in range(self.chance.choice((1, 2, 2, 3)))
        ]
        self.workers = [
            WorkerMachine(f"worker-{at}", self.perform, **self._place()) for at in range(self.chance.choice((1, 2, 2)))
        ]
        self.pace_s = self.chance.choice((0.02, 0.2, 0.8))
        self.clients = Clients(self)
        self.nemesis = Nemesis(self, ways)
        self.is_quiet = False

    def _place(self) -> dict[str, Any]:
        own = random.Random(self.chance.getrandbits(64))
        return {"loop": self.loop, "broker": self.broker, "fates": self.fates, "chance": own}

    @property
    def machines(self) -> list[Machine]:
        return [*self.planes, *self.workers]

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def trace(self, *what: Any) -> None:
        line = f"{self.loop.time():.6f} {' '.join(map(str, what))}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def live(self) -> "Day":
        for machine in self.machines:
            machine.clock.skew_ms = self.chance.choice((0, 0, 0, -2_000, 1_500))
            self.loop.outside(machine.start, after_s=self.chance.random() * 0.5)
        self.nemesis.plan(TROUBLE_S)
        self.clients.plan(TROUBLE_S)
        self.loop.outside(self._heal, after_s=TROUBLE_S)
        self.loop.run_until(lambda: self.is_quiet, until_s=TROUBLE_S + PATIENCE_S)
        return self

    def _heal(self) -> None:
        self.trace("healed")
        self.fates.calm()
        self.nemesis.heal()
        self._look()

    def _look(self) -> None:
        self._restart_the_dead()
        if self.clients.are_done and not self._open():
            self.loop.outside(self._be_quiet, after_s=SETTLE_S)
        else:
            self.loop.outside(self._look, after_s=0.5)

    def _be_quiet(self) -> None:
        self.is_quiet = True

    def _restart_the_dead(self) -> None:
        for machine in self.machines:
            machine.start()

    def _open(self) -> int:
        query = "SELECT count(*) FROM executions WHERE ended_at_ms IS NULL"
        return int(self.server.driver.execute(query).fetchone()[0])

    async def perform(self, machine: WorkerMachine, request: StepRequest) -> Any:
        """A step, as its agent would do it: quick or slow, well or badly, or deadly."""
        self.trace("ran", request.execution_id, request.path, request.attempt, machine.process)
        self.effects.append(Effect(request.execution_id, request.path, request.attempt, request.effect_key))
        chance = self.fates.chance
        takes_s = chance.random() * self.pace_s
        if chance.random() < 0.03 and not self._is_healed():
            takes_s = chance.random() * 6.0  # past its timeout, perhaps past the patience of the bus
        await machine.clock.sleep(takes_s)
        drawn = chance.random()
        if drawn < 0.02 and not self._is_healed():
            self.trace("killed by its step", machine.process)
            machine.kill()
            await self.loop.create_future()
        if drawn < 0.15:
            raise StepFailed(chance.choice(_FAULTS))
        return {"said": request.path, "attempt": request.attempt}

    def _is_healed(self) -> bool:
        return self.loop.time() >= TROUBLE_S

    # The evening.

    def found(self) -> list[Violation]:
        """What was broken. Empty on a day that is as it should be."""
        wrong = violations(self.history())
        for machine in self.machines:
            wrong += [Violation("crash", trouble) for trouble in machine.troubles]
        wrong += [Violation("crash", trouble) for trouble in self.loop.troubles]
        wrong += [Violation("I4", f"{what} has the outcome of another attempt") for what in self._mixed_up()]
        wrong += [Violation("client", surprise) for surprise in self.clients.surprises]
        wrong += [Violation("replay", what) for what in self._decided_otherwise()]
        return wrong

    def history(self) -> History:
        ask = self.server.driver.execute
        events = ask(
            "SELECT position, tenant_id, execution_id, version, epoch, event_data FROM event_store ORDER BY position"
        )
        listed = ask("SELECT id, tenant_id, status, shard, started_at_ms, ended_at_ms FROM executions")
        kept = ask("SELECT execution_id, version, state FROM execution_snapshots")
        held = ask("SELECT shard, epoch, holder, expires_at_ms FROM shard_leases")
        now_ms = self.loop.time() * 1000
        return History(
            at_ms=EPOCH_MS + int(now_ms),
            events=tuple(
                Recorded(position, tenant, execution, shard_of(execution, SHARDS), version, epoch, decode(data))
                for position, tenant, execution, version, epoch, data in events
            ),
            listed=tuple(Listed(one, tenant, Status(status), *more) for one, tenant, status, *more in listed),
            snapshots=tuple(Kept(execution, version, unpacked(state)) for execution, version, state in kept),
            leases=tuple(Held(shard, epoch, holder, (until - now_ms) / 1000) for shard, epoch, holder, until in held),
            asked=tuple(self.clients.asked),
            effects=tuple(self.effects),
            sent=frozenset(self.broker.sent),
            remembered=tuple(self._remembered()),
            bus_forgot=self.broker.forgot,
            left_behind=tuple(self._left_behind()),
        )

    def _mixed_up(self) -> Iterator[str]:
        for (data,) in self.server.driver.execute("SELECT event_data FROM event_store"):
            event = decode(data)
            if isinstance(event, happened.StepSucceeded) and event.output["attempt"] != event.attempt:
                yield event.path

    def _decided_otherwise(self) -> Iterator[str]:
        """Executions that do not come out as they were when they are decided again."""
        logs: dict[str, list[happened.Event]] = {}
        for execution, data in self.server.driver.execute(
            "SELECT execution_id, event_data FROM event_store ORDER BY execution_id, version"
        ):
            logs.setdefault(execution, []).append(decode(data))
        for execution, log in logs.items():
            started = log[0]
            if isinstance(started, happened.ExecutionStarted):
                _, divergence = replayed(log, program_named(started.workflow.name))
                if divergence is not None:
                    yield f"{execution}: {divergence}"

    def _remembered(self) -> Iterator[Any]:
        for plane in self.planes:
            if plane.is_up and plane.orchestrator is not None:
                yield from plane.orchestrator._open.values()

    def _left_behind(self) -> Iterator[str]:
        """What should be empty when everything has ended."""
        if self._open():
            return
        for plane in self.planes:
            here = plane.orchestrator
            if plane.is_up and here is not None:
                held = {
                    "open executions": here._open,
                    "timers": here._timers._armed,
                    "watchers": here._watchers._waiting,
                    "arrivals": here._inbox,
                    "children to tell of": here._performer._unheard,
                    "children to begin": here._performer._suspected,
                }
                yield from (f"{plane.process}: {len(left)} {name}" for name, left in held.items() if len(left))
        for worker in self.workers:
            if worker.is_up and worker.reporter is not None:
                old_s = self.loop.time() - 3 * BUS_CONFIRM_S
                unsent = [one for one in worker.reporter._underway.values() if one.since_s < old_s]
                if unsent:
                    yield f"{worker.process}: {len(unsent)} results that it does not get rid of"

    def end(self) -> None:
        self.loop.bury()
        for worker in self.workers:
            worker.kill()
            worker.remove_disk()


@contextmanager
def at_speed() -> Iterator[None]:
    """Without what takes most of a day's time and is no part of it: logs that nobody reads, garbage that goes with the
    day, and how often a worker looks whether it has something to do."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    collects = gc.isenabled()
    gc.disable()
    try:
        with mock.patch("worker.reporter._LOOK_S", 0.4), mock.patch("worker.heartbeat._LOOK_S", 0.5):
            yield
    finally:
        structlog.configure(**before)
        if collects:
            gc.enable()


_servers: list[Server] = []


def lived(seed: int, *, ways: tuple[str, ...] = (), keep_trace: bool = False) -> tuple[Day, list[Violation]]:
    """A day from its first moment to what is found in the evening. `ways`: what breaks, instead of everything."""
    if not _servers:
        _servers.append(Server())
    with at_speed():
        day = Day(seed, _servers[0], ways=ways, keep_trace=keep_trace)
        try:
            return day, day.live().found()
        except StuckLoop as stuck:
            return day, [Violation("I19", str(stuck))]
        finally:
            day.end()


def seen_on(day: Day) -> Iterator[str]:
    """Which of the rare things happened: a simulation that never sees them proves nothing about them."""
    yield from day.nemesis.counts
    yield from (f"asked {one.kind}: {one.outcome}" for one in day.clients.asked)
    yield from day.broker.seen
    if day.fates.unanswered:
        yield "commit unanswered"
    codes = [row[0] for row in day.server.driver.execute("SELECT event_data FROM event_store")]
    for event in map(decode, codes):
        if isinstance(event, happened.StepFailed):
            yield f"fault {event.fault.code}"
        else:
            yield type(event).__name__
