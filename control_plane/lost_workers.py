"""What happens when a worker falls silent: its steps go to others within seconds, whatever JetStream's ack wait is.

Joins the registry, which hears heartbeats, and the orchestrator, which owns the attempts. First what the worker had
said it held; then what it was given and could not say any more: steps that its agents were sent, that are out of the
mailbox, and that no living worker has. A wrong guess costs a repeated attempt, never a second outcome.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import HeldStep
from agentflow.errors import Unavailable
from agentflow.ids import AgentName, WorkerId
from agentflow.ports import MessageBus
from control_plane.registry.agents import LiveAgents, LostWorker

_log = structlog.get_logger(__name__)

_HEARD_S = 1.5 * limits.HEARTBEAT_S  # in this time every living worker has said what it holds
_LOOKS_MAX = 30


class Attempts(Protocol):
    """What is asked of the orchestrator."""

    def steps_lost(self, worker: WorkerId, steps: Sequence[HeldStep], silent_s: float) -> None: ...

    def waiting_for(self, agents: Collection[str], *, since_before_ms: int) -> list[HeldStep]: ...


class Bus(MessageBus, Protocol):
    @property
    def connected(self) -> bool: ...


@asynccontextmanager
async def care_for_lost_workers(agents: LiveAgents, attempts: Attempts, bus: Bus, clock: Clock) -> AsyncIterator[None]:
    """For as long as the block lasts."""
    searches: set[asyncio.Task[None]] = set()

    def lost(worker: LostWorker) -> None:
        attempts.steps_lost(worker.worker, worker.steps, worker.silent_s)
        search = asyncio.create_task(_find_unsaid(worker, agents, attempts, bus, clock))
        searches.add(search)
        search.add_done_callback(searches.discard)

    watch = asyncio.create_task(agents.watch(lambda: bus.connected, lost), name="watch over workers")
    try:
        yield
    finally:
        for task in (watch, *searches):
            task.cancel()
        await asyncio.gather(watch, *searches, return_exceptions=True)


async def _find_unsaid(worker: LostWorker, agents: LiveAgents, attempts: Attempts, bus: Bus, clock: Clock) -> None:
    before_ms = clock.now_ms()
    left = set(worker.agents)
    for _ in range(_LOOKS_MAX):
        if not attempts.waiting_for(left, since_before_ms=before_ms):
            return
        delivered = {name for name in left if await _is_all_delivered(bus, AgentName(name))}
        await clock.sleep(_HEARD_S)
        unsaid = [step for step in attempts.waiting_for(delivered, since_before_ms=before_ms) if not agents.holds(step)]
        if unsaid:
            _log.warning("steps.unsaid", worker=worker.worker, steps=len(unsaid))
            attempts.steps_lost(worker.worker, unsaid, worker.silent_s + _HEARD_S)
        left -= delivered


async def _is_all_delivered(bus: Bus, agent: AgentName) -> bool:
    try:
        mailbox = subjects.agent_mailbox(agent, concurrency=limits.AGENT_CONCURRENCY_DEFAULT)
        return (await bus.backlog(mailbox)).waiting == 0
    except Unavailable:
        return False
