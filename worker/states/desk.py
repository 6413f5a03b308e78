"""Asks the control plane for states, over the bus, until it answers or the time for it is over."""

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.agent_state import (
    ClaimState,
    SaveState,
    StateAnswer,
    StateClaimed,
    StateFenced,
    StateHeld,
    StateQuestion,
    StateRef,
    StateRefused,
    StateSaved,
    decode_answer,
    encode,
)
from agentflow.contracts.step import StepFault
from agentflow.errors import Bug
from agentflow.ids import WorkerId
from agentflow.ports import BusUnavailable, MessageBus
from worker.outcome import StepFailed

_ANSWER_S = 5.0
_PAUSE_S_FIRST = 0.02
_PAUSE_S_MAX = 0.5


class Fenced(Exception):
    """Another worker has the state now."""


class StateDesk:
    """Agents are made before there is a bus to ask over; `connect` gives it."""

    def __init__(self, *, clock: Clock, worker: WorkerId, pool: str) -> None:
        self._subject = subjects.of_pool(subjects.AGENT_STATES, pool)
        self._bus: MessageBus | None = None
        self._clock = clock
        self._worker = worker

    def connect(self, bus: MessageBus) -> None:
        self._bus = bus

    async def claim(self, ref: StateRef, *, within_s: float) -> StateClaimed:
        """Waits while another worker lets it go."""
        answer = await self._ask(ClaimState(ref, self._worker), within_s=within_s)
        if isinstance(answer, StateClaimed):
            return answer
        raise Bug(f"A claim was answered with {type(answer).__name__}.")

    async def save(
        self, ref: StateRef, version: int, data: bytes, checkpoint_type: str, *, release: bool, within_s: float
    ) -> int:
        """The version it has now. Raises `Fenced` where it is ours no longer."""
        question = SaveState(ref, self._worker, version, data, checkpoint_type, release)
        answer = await self._ask(question, within_s=within_s)
        match answer:
            case StateSaved():
                return answer.version
            case StateFenced():
                raise Fenced
            case _:
                raise Bug(f"A save was answered with {type(answer).__name__}.")

    async def _ask(self, question: StateQuestion, *, within_s: float) -> StateAnswer:
        ends_at_s = self._clock.monotonic_s() + within_s
        pause_s = _PAUSE_S_FIRST
        while True:
            left_s = ends_at_s - self._clock.monotonic_s()
            answer = await self._once(question, max(0.1, min(_ANSWER_S, left_s)))
            match answer:
                case StateHeld():
                    why = f"it is with {answer.by}"
                case StateRefused() if answer.retryable:
                    why = answer.message
                case StateRefused():
                    raise StepFailed(StepFault(answer.code, answer.message))
                case str():
                    why = answer
                case _:
                    return answer
            if left_s <= pause_s:
                late = f"The agent's state could not be had in time: {why}."
                raise StepFailed(StepFault("state_unavailable", late, retryable=True))
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    async def _once(self, question: StateQuestion, within_s: float) -> StateAnswer | str:
        if self._bus is None:
            return "there is no connection to the bus yet"
        try:
            raw = await self._bus.request(self._subject, encode(question), within_s=within_s)
        except BusUnavailable as error:
            return error.message
        return decode_answer(raw)
