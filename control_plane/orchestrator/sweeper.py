"""Sends again what seems lost: steps that were dispatched long ago and have no outcome.

The guarantee behind fire-and-forget publishing: NATS may be wiped at any moment and work still finishes. A
repeat inside the stream's de-duplication window is dropped by the stream, so it is always safe; later, a step
is repeated only when its agent's mailbox is empty, or a long-running step would be handed out twice. What went straight
to a worker the stream never saw: that is not repeated while a living worker says that it is there.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.pools import Pools
from agentflow.contracts.step import HeldStep
from agentflow.execution.commands import DispatchStep
from agentflow.execution.state import ExecutionState, dispatch
from agentflow.ids import AgentName, ExecutionId, StepPath
from agentflow.ports import MessageBus
from control_plane.orchestrator.outbound import Outbound
from control_plane.orchestrator.windows import Place, Windows

_log = structlog.get_logger(__name__)

# What the living workers of a pool have said that they hold.
Holding = Callable[[str], frozenset[HeldStep]]


class _Sent(NamedTuple):
    at_s: float
    execution: ExecutionId
    path: StepPath
    attempt: int


class Sweeper:
    def __init__(
        self,
        *,
        bus: MessageBus,
        outbound: Outbound,
        clock: Clock,
        open_executions: Mapping[ExecutionId, ExecutionState],
        resend_after_s: float,
        windows: Windows,
        withholds: Callable[[ExecutionState, AgentName], bool],
        pools: Pools,
        holding: Holding,
    ) -> None:
        self._pools = pools
        self._holding = holding
        self._bus = bus
        self._outbound = outbound
        self._clock = clock
        self._open = open_executions
        self._resend_after_s = resend_after_s
        self._windows = windows
        self._withholds = withholds
        self._sent: deque[_Sent] = deque()  # oldest first
        self._suspected: deque[_Sent] = deque()  # what may have gone straight to a worker
        self._uncertain: set[Place] = set()  # of those, what was not looked at yet or found no room
        self._settled: list[Place] = []

    def sent(self, execution: ExecutionId, command: DispatchStep) -> None:
        self._sent.append(_Sent(self._clock.monotonic_s(), execution, command.path, command.attempt))

    def suspect(self, execution: ExecutionId, command: DispatchStep) -> None:
        """Nobody here remembers whether it was ever sent: overdue now, or once whoever has it must have said so."""
        if command.straight:
            self._suspected.append(_Sent(self._clock.monotonic_s(), execution, command.path, command.attempt))
            self._uncertain.add(Place(execution, command.path, command.attempt))
        else:
            self._sent.appendleft(_Sent(-math.inf, execution, command.path, command.attempt))

    def was_suspected(self, place: Place) -> bool:
        """Whether an earlier owner may have sent it straight to a worker. Asked when it is about to be sent."""
        known = place in self._uncertain
        self._uncertain.discard(place)
        return known

    def settled(self) -> list[Place]:
        """What was found to be over since the last time, however that came about: no room is lost for good."""
        found, self._settled = self._settled, []
        return found

    async def sweep(self) -> int:
        """Repeat what is overdue; returns how many steps were sent again."""
        idle: dict[tuple[str, AgentName], bool] = {}
        held: dict[str, frozenset[HeldStep]] = {}
        again = 0
        for sent in self._due():
            state = self._open.get(sent.execution)
            step = state.in_flight.get(sent.path) if state is not None else None
            if state is None or step is None or step.attempt != sent.attempt:
                place = Place(sent.execution, sent.path, sent.attempt)
                self._uncertain.discard(place)
                if place in self._windows:
                    self._settled.append(place)
                continue  # it has its outcome
            command = dispatch(step)
            place = Place(sent.execution, sent.path, sent.attempt)
            if self._withholds(state, step.agent):
                self.sent(sent.execution, command)  # it may be under way; if it is not, it must not be now
                continue
            if not self._windows.enter(step.agent, state.tenant, place, priority=state.priority):
                continue  # it goes out when others have come back
            self.sent(sent.execution, command)
            pool = self._pools.of(state.tenant, step.agent)
            if step.straight:
                if pool not in held:
                    held[pool] = self._holding(pool)
                if HeldStep(sent.execution, sent.path, sent.attempt) in held[pool]:
                    continue  # it is being worked on
            age_s = (self._clock.now_ms() - step.at_ms) / 1000
            if age_s >= limits.DEDUP_WINDOW_S / 2 and not await self._is_idle(pool, step.agent, idle):
                continue
            self._uncertain.discard(place)
            if await self._outbound.send_again(state, command):
                again += 1
        if again:
            _log.info("steps.sent_again", steps=again)
        return again

    def _due(self) -> Iterator[_Sent]:
        """Each leaves its line; what is sent again meanwhile comes in at the end."""
        now_s = self._clock.monotonic_s()
        for line, after_s in ((self._suspected, limits.HEARD_S), (self._sent, self._resend_after_s)):
            while line and line[0].at_s <= now_s - after_s:
                yield line.popleft()

    async def _is_idle(self, pool: str, agent: AgentName, known: dict[tuple[str, AgentName], bool]) -> bool:
        if (pool, agent) not in known:
            mailbox = subjects.agent_mailbox(pool, agent, concurrency=limits.AGENT_CONCURRENCY_DEFAULT)
            backlog = await self._bus.backlog(mailbox)
            known[pool, agent] = backlog.waiting + backlog.unacked == 0
        return known[pool, agent]
