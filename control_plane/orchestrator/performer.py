"""Where a command meets the world: steps go to agents, children are begun, workers are told to stop.

Called by the commit loop after the commit. Whatever gets lost on the way follows from the state again: what is not
certain to have been done is suspected, and done once more by `catch_up`.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple, assert_never

import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.errors import Rejected, Unavailable
from agentflow.execution.commands import (
    CancelChild,
    CancelStep,
    CloseTask,
    Command,
    DispatchStep,
    OpenTask,
    StartChild,
)
from agentflow.execution.events import Event, StepDoubted, StepFailed, StepHalted, StepSucceeded
from agentflow.execution.state import ExecutionState, dispatch
from agentflow.ids import AgentName, ExecutionId
from control_plane.orchestrator.batch import Draft
from control_plane.orchestrator.children import Children
from control_plane.orchestrator.outbound import Outbound
from control_plane.orchestrator.sweeper import Sweeper
from control_plane.orchestrator.windows import Place, Windows

_OVER = (StepSucceeded, StepFailed, StepHalted, StepDoubted)

_log = structlog.get_logger(__name__)


class _Look(NamedTuple):
    """When to look for a child that its parent waits for."""

    at_s: float
    order: int  # unique, so the heap compares no further
    pause_s: float  # before the next look
    execution: ExecutionId
    command: StartChild


class Performer:
    def __init__(
        self,
        *,
        outbound: Outbound,
        sweeper: Sweeper,
        windows: Windows,
        withholds: Callable[[ExecutionState, AgentName], bool],
        children: Children,
        open_executions: Mapping[ExecutionId, ExecutionState],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._outbound = outbound
        self._sweeper = sweeper
        self._windows = windows
        self._withholds = withholds
        self._children = children
        self._open = open_executions
        self._suspected: deque[tuple[ExecutionId, StartChild]] = deque()  # perhaps never begun
        self._looks: list[_Look] = []
        self._order = count()
        self._unheard: deque[ExecutionState] = deque()  # children whose end could not be told yet

    def prepare(self, draft: Draft) -> None:
        """Write what it will send, while it is being committed. Nothing goes out, so nothing needs to be undone."""
        for command in draft.commands:
            if isinstance(command, DispatchStep):
                with suppress(Rejected):  # told when it is sent
                    draft.messages[command.path] = self._outbound.step_message(draft.state, command)

    async def perform(self, draft: Draft, command: Command) -> None:
        state = draft.state
        match command:
            case DispatchStep():
                place = Place(state.execution, command.path, command.attempt)
                if self._withholds(state, command.agent):
                    self._windows.park(place)  # decided before the budget was used up: it was never sent
                elif self._windows.enter(command.agent, state.tenant, place, priority=state.priority):
                    await self._outbound.send_step(state, command, draft.back, draft.messages.get(command.path))
                    self._sweeper.sent(state.execution, command)
            case CancelStep():
                await self._outbound.send_cancel(state, command)
            case StartChild():
                await self._start_child(state, command)
            case CancelChild():
                self._children.cancel(state, command)
            case OpenTask() | CloseTask():
                pass  # people find it in the state of the execution, and answer it there
            case _:
                assert_never(command)

    async def settled(self, before: ExecutionState, state: ExecutionState, events: Sequence[Event]) -> None:
        """What came back, or is not waited for any more, makes room for others in its agent's window."""
        for event in events:
            if isinstance(event, _OVER):
                flight = before.in_flight.get(event.path)
                if flight is not None:
                    await self.over(Place(state.execution, flight.path, flight.attempt))
        if state.ended and before.in_flight:
            for flight in before.in_flight.values():
                await self.over(Place(state.execution, flight.path, flight.attempt))

    async def over(self, place: Place) -> None:
        rest = self._windows.over(place)
        while rest:
            following = rest.pop()
            state = self._open.get(following.execution)
            step = state.in_flight.get(following.path) if state is not None else None
            if state is None or step is None or step.attempt != following.attempt:
                rest += self._windows.over(following)  # nobody waits for it any more
                continue
            if self._withholds(state, step.agent):
                rest += self._windows.park(following)
                continue
            await self._send_at_last(state, following, dispatch(step))

    async def _unpark(self) -> None:
        """What had to wait for a budget, and need not any more."""
        for place in self._windows.parked():
            state = self._open.get(place.execution)
            step = state.in_flight.get(place.path) if state is not None else None
            if state is not None and step is not None and self._withholds(state, step.agent):
                continue
            self._windows.unpark(place)
            if state is None or step is None or step.attempt != place.attempt:
                continue
            if self._windows.enter(step.agent, state.tenant, place, priority=state.priority):
                await self._send_at_last(state, place, dispatch(step))

    async def _send_at_last(self, state: ExecutionState, place: Place, command: DispatchStep) -> None:
        """It waited here, so we have not sent it; an earlier owner may have, straight to a worker."""
        if self._sweeper.was_suspected(place):
            await self._outbound.send_again(state, command)
        else:
            await self._outbound.send_step(state, command)
        self._sweeper.sent(state.execution, command)

    def suspect(self, execution: ExecutionId, command: Command) -> None:
        """Nobody here knows whether this was ever done."""
        match command:
            case DispatchStep():
                self._sweeper.suspect(execution, command)
            case StartChild():
                self._look_at(-1.0, execution, command)

    def ended(self, state: ExecutionState) -> None:
        if state.parent is not None:
            self._children.report(state, refused=lambda: self._unheard.append(state))

    async def catch_up(self) -> None:
        """Tell what was unheard, begin what was not, and look for the children that have been silent for long."""
        for place in self._sweeper.settled():
            await self.over(place)
        await self._unpark()
        for _ in range(len(self._unheard)):
            self.ended(self._unheard.popleft())
        now_s = self._clock.monotonic_s()
        while self._looks and self._looks[0].at_s <= now_s:
            self._look(heapq.heappop(self._looks))
        for _ in range(len(self._suspected)):
            execution, command = self._suspected.popleft()
            state = self._open.get(execution)
            if state is not None and command.path in state.children:
                await self._start_child(state, command)

    def _look_at(
        self, at_s: float, execution: ExecutionId, command: StartChild, pause_s: float = limits.CHILD_LOOK_S
    ) -> None:
        heapq.heappush(self._looks, _Look(at_s, next(self._order), pause_s, execution, command))

    def _look(self, look: _Look) -> None:
        execution, command = look.execution, look.command
        state = self._open.get(execution)
        if state is None or command.path not in state.children:
            return
        self._children.look(
            state,
            command,
            unborn=lambda: self._suspected.append((execution, command)),
            refused=lambda: None,  # the next look may be luckier
        )
        pause_s = min(2 * look.pause_s, limits.CHILD_LOOK_S_MAX)
        self._look_at(self._clock.monotonic_s() + look.pause_s, execution, command, pause_s)

    async def _start_child(self, state: ExecutionState, command: StartChild) -> None:
        def again() -> None:
            self._suspected.append((state.execution, command))

        self._look_at(self._clock.monotonic_s() + limits.CHILD_LOOK_S, state.execution, command)
        try:
            await self._children.start(state, command, refused=again)
        except Unavailable as error:
            _log.warning("child.postponed", execution=state.execution, path=command.path, reason=error.message)
            again()
