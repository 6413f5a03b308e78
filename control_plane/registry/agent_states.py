"""The states of agents that remember: who has one now, what was last saved, and that two never write it.

Answers what workers ask (`agentflow.contracts.agent_state`); any replica may, because the store's version check is
the only judge. A state that a lost worker held goes to the next who asks; a living one is asked to let it go first.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.contracts.agent_state import (
    ClaimState,
    SaveState,
    StateAnswer,
    StateClaimed,
    StateFenced,
    StateHeld,
    StateRef,
    StateRefused,
    StateSaved,
    decode_question,
    encode,
)
from agentflow.contracts.pools import may_act_for
from agentflow.errors import AgentFlowError, Forbidden, Invalid
from agentflow.ids import WorkerId

_log = structlog.get_logger(__name__)


class StoredState(msgspec.Struct, frozen=True):
    version: int
    worker: WorkerId | None  # None: it sleeps
    data: bytes
    checkpoint_type: str
    saved_at_ms: int


class AgentStateStore(Protocol):
    async def latest(self, ref: StateRef) -> StoredState | None: ...

    async def append(self, ref: StateRef, state: StoredState) -> bool:
        """Write the next version. False, and nothing is written, unless `state.version` follows the newest one."""
        ...


class StateTooLarge(Invalid):
    code = "AF1311"

    def __init__(self, ref: StateRef, size: int) -> None:
        super().__init__(
            f"The state {ref.instance!r} of agent {ref.agent!r} has {size} bytes compressed; "
            f"{limits.AGENT_STATE_BYTES_MAX} are allowed.",
            hint="Keep what is large in the artifact store and its address in the state.",
        )


class StateOfAnother(Forbidden):
    code = "AF1314"

    def __init__(self) -> None:
        super().__init__(
            "The state is another tenant's.", hint="Start this worker with AF_WORKER_TENANT as its credential has it."
        )


class AgentStates:
    def __init__(
        self,
        store: AgentStateStore,
        *,
        clock: Clock,
        is_lost: Callable[[str, WorkerId], bool],
        ask_release: Callable[[str, StateRef], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._is_lost = is_lost
        self._ask_release = ask_release

    async def answer(self, pool: str, raw: bytes) -> bytes:
        """`pool`: of the worker that asks. Of another tenant's states it learns and changes nothing."""
        try:
            question = decode_question(raw)
            if not may_act_for(pool, question.ref.tenant):
                raise StateOfAnother
            answer = await self._answer(pool, question)
        except msgspec.DecodeError as error:
            answer = StateRefused("AF1002", f"The question cannot be read: {error}.", retryable=False)
        except AgentFlowError as error:
            answer = StateRefused(error.code, error.message, error.retryable)
        return encode(answer)

    async def _answer(self, pool: str, question: ClaimState | SaveState) -> StateAnswer:
        match question:
            case ClaimState():
                return await self._claim(pool, question)
            case SaveState():
                return await self._save(question)
            case _:
                assert_never(question)

    async def _claim(self, pool: str, claim: ClaimState) -> StateAnswer:
        before = await self._store.latest(claim.ref)
        holder = before.worker if before is not None else None
        if holder is not None and holder != claim.worker and not self._is_lost(pool, holder):
            await self._ask_release(pool, claim.ref)
            return StateHeld(holder)
        version = before.version + 1 if before is not None else 1
        data = before.data if before is not None else b""
        claimed = StoredState(version, claim.worker, data, "claim", self._clock.now_ms())
        if not await self._store.append(claim.ref, claimed):
            return StateHeld("another worker")  # it was quicker by a moment
        if holder not in (None, claim.worker):
            _log.info("agent_state.taken_over", agent=claim.ref.agent, instance=claim.ref.instance, lost=holder)
        return StateClaimed(version, data)

    async def _save(self, save: SaveState) -> StateAnswer:
        if len(save.data) > limits.AGENT_STATE_BYTES_MAX:
            raise StateTooLarge(save.ref, len(save.data))
        holder = None if save.release else save.worker
        kept = StoredState(save.version + 1, holder, save.data, save.checkpoint_type, self._clock.now_ms())
        if await self._store.append(save.ref, kept):
            return StateSaved(kept.version)
        now = await self._store.latest(save.ref)
        if now is not None and (now.version, now.worker, now.data) == (kept.version, kept.worker, kept.data):
            return StateSaved(kept.version)  # said before; the answer was lost
        _log.warning("agent_state.fenced", agent=save.ref.agent, instance=save.ref.instance, worker=save.worker)
        return StateFenced(now.version if now is not None else 0)
