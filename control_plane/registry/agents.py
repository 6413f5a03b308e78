"""Which agents have live workers now, and which worker has fallen silent, from the workers' heartbeats.

Kept in memory only: it is never a truth. A lost worker is a hint to look after what the worker held; whether an
attempt really ends is decided by the heart, and a worker that was only slow finds its late result refused.
"""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.contracts.step import Heartbeat, HeldStep
from agentflow.errors import NotFound
from agentflow.ids import WorkerId
from agentflow.workflow.suggest import did_you_mean

_log = structlog.get_logger(__name__)


class LiveAgent(msgspec.Struct, frozen=True):
    name: str
    workers: int
    running: int


class LiveWorker(msgspec.Struct, frozen=True):
    """One worker that answers for an agent."""

    worker: WorkerId
    running: int
    draining: bool
    started_at_ms: int
    heard_s_ago: float


class AgentNotFound(NotFound):
    code = "AF1226"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"No worker answers for the agent `{name}`.", hint=did_you_mean(name, known, kind="agents"))


class LostWorker(msgspec.Struct, frozen=True):
    """A worker that is not heard any more, with what it said it held. What it took since then is not in it."""

    worker: WorkerId
    agents: tuple[str, ...]
    steps: tuple[HeldStep, ...]
    silent_s: float


class LiveAgents:
    def __init__(
        self,
        clock: Clock,
        *,
        lost_after_s: float = limits.WORKER_LOST_AFTER_S,
    ) -> None:
        self._clock = clock
        self._lost_after_s = lost_after_s
        self._beats: dict[WorkerId, tuple[float, Heartbeat]] = {}
        self._listening_since_s = clock.monotonic_s()
        self._checked_at_s = clock.monotonic_s()
        self._decoder = msgspec.json.Decoder(Heartbeat)

    def heard(self, raw: bytes) -> None:
        try:
            beat = self._decoder.decode(raw)
        except msgspec.DecodeError as error:
            _log.warning("heartbeat.refused", reason=str(error))
            return
        if beat.leaving:
            self._beats.pop(beat.worker, None)
        else:
            self._beats[beat.worker] = (self._clock.monotonic_s(), beat)

    def now(self) -> list[LiveAgent]:
        oldest_s = self._clock.monotonic_s() - self._lost_after_s
        agents: dict[str, LiveAgent] = {}
        for heard_at_s, beat in self._beats.values():
            for name, running in beat.agents.items() if not beat.draining and heard_at_s >= oldest_s else ():
                known = agents.get(name, LiveAgent(name, 0, 0))
                agents[name] = LiveAgent(name, known.workers + 1, known.running + running)
        return sorted(agents.values(), key=lambda agent: agent.name)

    def workers(self, name: str) -> list[LiveWorker]:
        """Who answers for an agent, those that take no more steps included. Raises `AgentNotFound` if nobody does."""
        now_s = self._clock.monotonic_s()
        heard = [(now_s - at_s, beat) for at_s, beat in self._beats.values() if now_s - at_s <= self._lost_after_s]
        found = [
            LiveWorker(beat.worker, beat.agents[name], beat.draining, beat.started_at_ms, ago_s)
            for ago_s, beat in heard
            if name in beat.agents
        ]
        if not found:
            raise AgentNotFound(name, sorted({agent for _, beat in heard for agent in beat.agents}))
        return sorted(found, key=lambda worker: worker.worker)

    def is_lost(self, worker: WorkerId) -> bool:
        """Whether a worker that may once have been there can be counted as gone."""
        if self._clock.monotonic_s() - self._listening_since_s < self._lost_after_s:
            return False  # we have not listened for long enough to say
        known = self._beats.get(worker)
        return known is None or self._clock.monotonic_s() - known[0] > self._lost_after_s

    def holds(self, step: HeldStep) -> bool:
        """Whether a worker that is heard has said that this step is with it."""
        oldest_s = self._clock.monotonic_s() - self._lost_after_s
        return any(step in beat.steps for heard_at_s, beat in self._beats.values() if heard_at_s >= oldest_s)

    async def watch(self, can_hear: Callable[[], bool], worker_lost: Callable[[LostWorker], None]) -> None:
        """Until cancelled. `can_hear` is whether our own line to the bus is whole."""
        while True:
            await self._clock.sleep(limits.HEARTBEAT_S)
            for lost in self.check(can_hear=can_hear()):
                worker_lost(lost)

    def check(self, *, can_hear: bool) -> list[LostWorker]:
        now_s = self._clock.monotonic_s()
        # While we were deaf, or stood still ourselves, everybody's silence says something about us and not about them.
        if not can_hear or now_s - self._checked_at_s > 2 * limits.HEARTBEAT_S:
            self._listening_since_s = now_s
            self._beats = {worker: (now_s, beat) for worker, (_, beat) in self._beats.items()}
        self._checked_at_s = now_s
        lost = [
            LostWorker(worker, tuple(sorted(beat.agents)), beat.steps, now_s - heard_at_s)
            for worker, (heard_at_s, beat) in self._beats.items()
            if now_s - heard_at_s > self._lost_after_s
        ]
        for each in lost:
            del self._beats[each.worker]
            _log.warning("worker.lost", worker=each.worker, steps=len(each.steps), silent_s=round(each.silent_s, 1))
        return lost
