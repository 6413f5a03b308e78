"""Which agents have live workers now, from the workers' heartbeats. Kept in memory only: it is never a truth."""

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.contracts.step import Heartbeat
from agentflow.ids import WorkerId

_log = structlog.get_logger(__name__)

_MISSED_BEATS = 3


class LiveAgent(msgspec.Struct, frozen=True):
    name: str
    workers: int
    running: int


class LiveAgents:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beats: dict[WorkerId, tuple[float, Heartbeat]] = {}
        self._decoder = msgspec.json.Decoder(Heartbeat)

    def heard(self, raw: bytes) -> None:
        try:
            beat = self._decoder.decode(raw)
        except msgspec.DecodeError as error:
            _log.warning("heartbeat.refused", reason=str(error))
            return
        self._beats[beat.worker] = (self._clock.monotonic_s(), beat)

    def now(self) -> list[LiveAgent]:
        oldest_s = self._clock.monotonic_s() - _MISSED_BEATS * limits.HEARTBEAT_S
        self._beats = {worker: beat for worker, beat in self._beats.items() if beat[0] >= oldest_s}
        agents: dict[str, LiveAgent] = {}
        for _, beat in self._beats.values():
            for name, running in beat.agents.items() if not beat.draining else ():
                known = agents.get(name, LiveAgent(name, 0, 0))
                agents[name] = LiveAgent(name, known.workers + 1, known.running + running)
        return sorted(agents.values(), key=lambda agent: agent.name)
