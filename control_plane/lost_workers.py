"""What happens when a worker falls silent: its steps go to others within seconds, whatever JetStream's ack wait is.

Joins the registry, which hears heartbeats, and the orchestrator, which owns the attempts. First what the worker had
said it held; then what it was given and could not say any more: steps that its agents were sent, that are out of the
mailbox, and that no living worker has. A wrong guess costs a repeated attempt, never a second outcome.

A worker whose connection has ended is gone (`worker_lines`), and what it said it held is free within two heartbeats.
One that is silent and connected may only be slow, and is given longer.
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
from control_plane.worker_lines import Heard, WorkerLines

_log = structlog.get_logger(__name__)

_LOOKS_MAX = 30


class Attempts(Protocol):
    """What is asked of the orchestrator."""

    def steps_lost(self, worker: WorkerId, pool: str, steps: Sequence[HeldStep], silent_s: float) -> None: ...

    def waiting_for(self, pool: str, agents: Collection[str], *, since_before_ms: int) -> list[HeldStep]: ...


class Bus(MessageBus, Protocol):
    @property
    def connected(self) -> bool: ...

    @property
    def line(self) -> int: ...


@asynccontextmanager
async def care_for_lost_workers(agents: LiveAgents, attempts: Attempts, bus: Bus, clock: Clock) -> AsyncIterator[None]:
    """For as long as the block lasts."""
    searches: set[asyncio.Task[None]] = set()

    def lost(worker: LostWorker) -> None:
        attempts.steps_lost(worker.worker, worker.pool, worker.steps, worker.silent_s)
        search = asyncio.create_task(_find_unsaid(worker, agents, attempts, bus, clock))
        searches.add(search)
        search.add_done_callback(searches.discard)

    async def look() -> None:
        lines = WorkerLines(bus)
        while True:
            await clock.sleep(limits.WORKER_LOOK_S)
            can_hear, gone = bus.connected and not lines.is_new(), set[Heard]()
            if can_hear:
                gone = await lines.ended(agents.heard_of(), agents.heard_of(silent_s=limits.WORKER_GONE_AFTER_S))
            for worker in agents.check(can_hear=can_hear and bus.connected, gone=gone):
                lost(worker)

    watch = asyncio.create_task(look(), name="watch over workers")
    try:
        yield
    finally:
        for task in (watch, *searches):
            task.cancel()
        await asyncio.gather(watch, *searches, return_exceptions=True)


async def _find_unsaid(worker: LostWorker, agents: LiveAgents, attempts: Attempts, bus: Bus, clock: Clock) -> None:
    names = frozenset(worker.agents)
    # A request for messages that it left standing may still be answered, with the very attempts that follow.
    suspect_until_ms = clock.now_ms() + round(limits.PULL_EXPIRES_S * 1000)
    for _ in range(_LOOKS_MAX):
        before_ms = min(clock.now_ms(), suspect_until_ms)
        delivered = {name for name in names if await _is_all_delivered(bus, worker.pool, AgentName(name))}
        await clock.sleep(limits.HEARD_S)
        waiting = attempts.waiting_for(worker.pool, delivered, since_before_ms=before_ms)
        unsaid = [step for step in waiting if not agents.holds(step)]
        if unsaid:
            _log.warning("steps.unsaid", worker=worker.worker, steps=len(unsaid))
            attempts.steps_lost(worker.worker, worker.pool, unsaid, worker.silent_s + limits.HEARD_S)
        elif before_ms == suspect_until_ms and delivered == names:
            return


async def _is_all_delivered(bus: Bus, pool: str, agent: AgentName) -> bool:
    try:
        mailbox = subjects.agent_mailbox(pool, agent, concurrency=limits.AGENT_CONCURRENCY_DEFAULT)
        return (await bus.backlog(mailbox)).waiting == 0
    except Unavailable:
        return False
