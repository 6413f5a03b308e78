"""Which agents have live workers now, and which worker has fallen silent, from the workers' heartbeats.

An agent belongs to the pool of its workers: a tenant sees its own, and of the shared ones those it is served by.

Kept in memory only: it is never a truth. A lost worker is a hint to look after what the worker held; whether an
attempt really ends is decided by the heart, and a worker that was only slow finds its late result refused.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec
import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.pools import NOTHING_SHARED, SHARED, Pools
from agentflow.contracts.step import TOOLS_AGENT, Heartbeat, HeldStep
from agentflow.errors import NotFound
from agentflow.ids import TenantId, WorkerId
from agentflow.workflow.suggest import did_you_mean

_log = structlog.get_logger(__name__)


class LiveAgent(msgspec.Struct, frozen=True):
    name: str
    workers: int
    running: int
    shared: bool = False  # with other tenants


class LiveWorker(msgspec.Struct, frozen=True):
    """One worker that answers for an agent."""

    worker: WorkerId
    running: int
    draining: bool
    started_at_ms: int
    heard_s_ago: float
    shared: bool = False


class AgentNotFound(NotFound):
    code = "AF1226"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"No worker answers for the agent `{name}`.", hint=did_you_mean(name, known, kind="agents"))


class LostWorker(msgspec.Struct, frozen=True):
    """A worker that is not heard any more, with what it said it held. What it took since then is not in it."""

    worker: WorkerId
    pool: str
    agents: tuple[str, ...]
    steps: tuple[HeldStep, ...]
    silent_s: float


class LiveAgents:
    def __init__(
        self,
        clock: Clock,
        *,
        lost_after_s: float = limits.WORKER_LOST_AFTER_S,
        pools: Pools = NOTHING_SHARED,
    ) -> None:
        self.pools = pools
        self._clock = clock
        self._lost_after_s = lost_after_s
        # A worker under the pool that it was heard in: what another pool says about it is about another worker.
        self._beats: dict[tuple[str, WorkerId], tuple[float, Heartbeat]] = {}
        # Heard before we were last deaf, and not since.
        self._from_before: set[tuple[str, WorkerId]] = set()
        self._listening_since_s = clock.monotonic_s()
        self._checked_at_s = clock.monotonic_s()
        self._decoder = msgspec.json.Decoder(Heartbeat)

    def heard(self, pool: str, raw: bytes) -> None:
        try:
            beat = self._decoder.decode(raw)
            subjects.worker_line(beat.worker)  # we ask there: what a worker calls itself must be no more than a name
        except (msgspec.DecodeError, subjects.UnusableName) as error:
            _log.warning("heartbeat.refused", reason=str(error))
            return
        self._from_before.discard((pool, beat.worker))
        if beat.leaving:
            self._beats.pop((pool, beat.worker), None)
        else:
            self._beats[pool, beat.worker] = (self._clock.monotonic_s(), beat)

    def now(self, tenant: TenantId) -> list[LiveAgent]:
        """Those that a tenant's steps can go to."""
        agents: dict[str, LiveAgent] = {}
        for name, worker in self._of(tenant):
            if not worker.draining:
                known = agents.get(name, LiveAgent(name, 0, 0))
                agents[name] = LiveAgent(name, known.workers + 1, known.running + worker.running, worker.shared)
        return sorted(agents.values(), key=lambda agent: agent.name)

    def own(self, tenant: TenantId) -> frozenset[str]:
        """The names of a tenant's own agents, whether or not its steps go to them."""
        return frozenset(name for (pool, _), (_, beat) in self._beats.items() if pool == tenant for name in beat.agents)

    def fences(self, tenant: TenantId) -> Counter[str]:
        """How many of the workers that run a tenant's tools name each sandbox as their weakest."""
        pool, oldest_s = self.pools.of(tenant, TOOLS_AGENT), self._clock.monotonic_s() - self._lost_after_s
        return Counter(
            beat.sandbox
            for (of, _), (heard_at_s, beat) in self._beats.items()
            if of == pool and heard_at_s >= oldest_s and beat.sandbox
        )

    def workers(self, tenant: TenantId, name: str) -> list[LiveWorker]:
        """Who answers for an agent, those that take no more steps included. Raises `AgentNotFound` if nobody does."""
        there = list(self._of(tenant))
        found = [worker for agent, worker in there if agent == name]
        if not found:
            raise AgentNotFound(name, sorted({agent for agent, _ in there}))
        return sorted(found, key=lambda worker: worker.worker)

    def _of(self, tenant: TenantId) -> Iterator[tuple[str, LiveWorker]]:
        """Every agent that a tenant's steps can go to, with each worker that was heard in time."""
        now_s = self._clock.monotonic_s()
        for (pool, worker), (heard_at_s, beat) in self._beats.items():
            ago_s = now_s - heard_at_s
            if ago_s > self._lost_after_s:
                continue
            for name, running in beat.agents.items():
                if self.pools.of(tenant, name) == pool:
                    yield name, LiveWorker(worker, running, beat.draining, beat.started_at_ms, ago_s, pool == SHARED)

    def is_lost(self, pool: str, worker: WorkerId) -> bool:
        """Whether a worker that may once have been there can be counted as gone."""
        if self._clock.monotonic_s() - self._listening_since_s < self._lost_after_s:
            return False  # we have not listened for long enough to say
        known = self._beats.get((pool, worker))
        return known is None or self._clock.monotonic_s() - known[0] > self._lost_after_s

    def holds(self, step: HeldStep) -> bool:
        """Whether a worker that is heard has said that this step is with it."""
        oldest_s = self._clock.monotonic_s() - self._lost_after_s
        return any(step in beat.steps for heard_at_s, beat in self._beats.values() if heard_at_s >= oldest_s)

    def holding(self, pool: str) -> frozenset[HeldStep]:
        """What the workers of a pool that are heard have said that they hold."""
        oldest_s = self._clock.monotonic_s() - self._lost_after_s
        beats = [beat for (of, _), (heard_at_s, beat) in self._beats.items() if of == pool and heard_at_s >= oldest_s]
        return frozenset(step for beat in beats for step in beat.steps)

    def heard_of(self, *, silent_s: float = 0.0) -> list[tuple[str, WorkerId]]:
        """Every worker heard since we can hear, under its pool: those of them that have been silent for as long."""
        since_s = self._clock.monotonic_s() - silent_s
        return [
            worker
            for worker, (heard_at_s, _) in self._beats.items()
            if heard_at_s <= since_s and worker not in self._from_before
        ]

    def check(self, *, can_hear: bool, gone: Collection[tuple[str, WorkerId]] = ()) -> list[LostWorker]:
        """Who is lost by now. `can_hear` is whether our own line to the bus is whole; `gone` are those without one."""
        now_s = self._clock.monotonic_s()
        # While we were deaf, or stood still ourselves, everybody's silence says something about us and not about them.
        if not can_hear or now_s - self._checked_at_s > 2 * limits.HEARTBEAT_S:
            self._listening_since_s = now_s
            self._beats = {key: (now_s, beat) for key, (_, beat) in self._beats.items()}
            self._from_before = set(self._beats)
        self._checked_at_s = now_s
        lost = [
            LostWorker(worker, pool, tuple(sorted(beat.agents)), beat.steps, now_s - heard_at_s)
            for (pool, worker), (heard_at_s, beat) in self._beats.items()
            if now_s - heard_at_s > self._lost_after_s
            or ((pool, worker) in gone and now_s - heard_at_s >= limits.WORKER_GONE_AFTER_S)
        ]
        for each in lost:
            del self._beats[each.pool, each.worker]
            self._from_before.discard((each.pool, each.worker))
            _log.warning("worker.lost", worker=each.worker, steps=len(each.steps), silent_s=round(each.silent_s, 1))
        return lost
