"""Where workspaces' states lie in tests without a control plane: the same rules, in memory."""

from agentflow.clock import SystemClock
from agentflow.contracts.agent_state import ClaimState, SaveState, StateClaimed, StateFenced, StateRef
from control_plane.registry.agent_states import AgentStates, StoredState
from worker.states.desk import Fenced


class _Memory:
    def __init__(self) -> None:
        self.states: dict[StateRef, StoredState] = {}

    async def latest(self, ref):
        return self.states.get(ref)

    async def append(self, ref, state) -> bool:
        newest = self.states.get(ref)
        if state.version != (newest.version if newest else 0) + 1:
            return False
        self.states[ref] = state
        return True


class Ledger:
    """The control plane's own `AgentStates` over a dictionary; `lost` are workers that count as gone."""

    def __init__(self, *, memory: _Memory | None = None, worker: str = "wrk_1") -> None:
        self.memory = memory or _Memory()
        self.lost: set[str] = set()
        self._worker = worker
        self._states = AgentStates(
            self.memory,
            clock=SystemClock(),
            is_lost=lambda _, worker: worker in self.lost,
            ask_release=self._ask_release,
        )

    async def claim(self, ref: StateRef, *, within_s: float) -> StateClaimed:
        answer = await self._states._answer("default", ClaimState(ref, self._worker))
        assert isinstance(answer, StateClaimed), answer
        return answer

    async def save(self, ref, version, data, checkpoint_type, *, release, within_s) -> int:
        answer = await self._states._answer(
            "default", SaveState(ref, self._worker, version, data, checkpoint_type, release)
        )
        if isinstance(answer, StateFenced):
            raise Fenced
        return answer.version

    async def _ask_release(self, pool: str, ref: StateRef) -> None:
        """Nobody is there to be asked."""
