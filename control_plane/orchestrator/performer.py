"""Where a command meets the world: steps go to agents, children are begun, workers are told to stop.

Called by the commit loop after the commit. Whatever gets lost on the way follows from the state again: what is not
certain to have been done is suspected, and done once more by `catch_up`.
"""

from collections import deque
from collections.abc import Mapping
from typing import assert_never

import structlog

from agentflow.errors import Unavailable
from agentflow.execution.commands import (
    CancelChild,
    CancelStep,
    CloseTask,
    Command,
    DispatchStep,
    OpenTask,
    StartChild,
)
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId
from control_plane.orchestrator.children import Children
from control_plane.orchestrator.outbound import Outbound
from control_plane.orchestrator.sweeper import Sweeper

_log = structlog.get_logger(__name__)


class Performer:
    def __init__(
        self,
        *,
        outbound: Outbound,
        sweeper: Sweeper,
        children: Children,
        open_executions: Mapping[ExecutionId, ExecutionState],
    ) -> None:
        self._outbound = outbound
        self._sweeper = sweeper
        self._children = children
        self._open = open_executions
        self._suspected: deque[tuple[ExecutionId, StartChild]] = deque()
        self._unheard: deque[ExecutionState] = deque()  # children whose end could not be told yet

    async def perform(self, state: ExecutionState, command: Command) -> None:
        match command:
            case DispatchStep():
                await self._outbound.send_step(state, command)
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

    def suspect(self, execution: ExecutionId, command: Command) -> None:
        """Nobody here knows whether this was ever done."""
        match command:
            case DispatchStep():
                self._sweeper.suspect(execution, command)
            case StartChild():
                self._suspected.append((execution, command))

    def ended(self, state: ExecutionState) -> None:
        if state.parent is not None:
            self._children.report(state, refused=lambda: self._unheard.append(state))

    async def catch_up(self) -> None:
        """Tell what was unheard, and begin again the children that are suspected while their parents still wait."""
        for _ in range(len(self._unheard)):
            self.ended(self._unheard.popleft())
        for _ in range(len(self._suspected)):
            execution, command = self._suspected.popleft()
            state = self._open.get(execution)
            if state is not None and command.path in state.children:
                await self._start_child(state, command)

    async def _start_child(self, state: ExecutionState, command: StartChild) -> None:
        def again() -> None:
            self._suspected.append((state.execution, command))

        try:
            await self._children.start(state, command, refused=again)
        except Unavailable as error:
            _log.warning("child.postponed", execution=state.execution, path=command.path, reason=error.message)
            again()
