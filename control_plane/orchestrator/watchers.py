"""Callers that wait for an execution to move: long polls and `wait: true`.

Told by the commit loop after each commit. In-process only: a watcher is on the replica that owns the shard.
"""

import asyncio
from collections.abc import Callable

from agentflow.errors import AgentFlowError
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId

Wanted = Callable[[ExecutionState], bool]


class Watchers:
    def __init__(self) -> None:
        self._waiting: dict[ExecutionId, list[tuple[Wanted, asyncio.Future[ExecutionState]]]] = {}

    def expect(self, execution: ExecutionId, wanted: Wanted) -> asyncio.Future[ExecutionState]:
        """A future for the first committed state that is wanted. Cancel it to stop waiting."""
        moved: asyncio.Future[ExecutionState] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, []).append((wanted, moved))
        moved.add_done_callback(lambda _: self._forget(execution))
        return moved

    def committed(self, state: ExecutionState) -> None:
        for wanted, moved in self._waiting.get(state.execution, ()):
            if not moved.done() and wanted(state):
                moved.set_result(state)

    def lost(self, execution: ExecutionId, error: AgentFlowError) -> None:
        """Nothing more will be committed here: tell whoever waits."""
        for _, moved in self._waiting.get(execution, ()):
            if not moved.done():
                moved.set_exception(error)
                moved.exception()  # seen: its waiter may have left, which asyncio would report as a fault

    def _forget(self, execution: ExecutionId) -> None:
        left = [entry for entry in self._waiting.get(execution, ()) if not entry[1].done()]
        if left:
            self._waiting[execution] = left
        else:
            self._waiting.pop(execution, None)
