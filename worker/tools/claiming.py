"""Asks for the one call of a tool that must not be called twice; nothing is called before that is granted.

The question goes to the owner of the execution's shard, who commits the claim before it answers. Without an answer the
tool is not called, and the step says that it was not: asking again is safe, calling is not.
"""

from collections.abc import Callable

import msgspec

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.step import NOT_DONE, STEP_CANCELLED, ClaimAnswer, StepClaim, StepFault, StepRequest
from agentflow.ids import TenantId, WorkerId
from agentflow.ports import BusUnavailable, MessageBus
from worker.outcome import StepFailed

_ANSWER_S = 5.0
_TRIES = 6
_AGAIN_S = 0.5


class CallClaims:
    def __init__(self, *, worker: WorkerId, pool: str, new_id: Callable[[], str], clock: Clock) -> None:
        self._pool = pool
        self._worker = worker
        self._new_id = new_id
        self._clock = clock
        self._bus: MessageBus | None = None

    def ask(self, bus: MessageBus) -> None:
        """From now on, over this bus."""
        self._bus = bus

    async def take(self, tenant: TenantId, request: StepRequest, *, undone: bool) -> None:
        """Returns once the call is ours. Raises `StepFailed` when it is not, or when nobody could say so."""
        claim = StepClaim(
            tenant, request.execution_id, request.path, request.attempt, self._worker, self._new_id(), undone
        )
        question = msgspec.json.encode(claim)
        why = "there is no bus to ask yet"
        for attempt in range(_TRIES):
            if attempt:
                await self._clock.sleep(_AGAIN_S)
            if self._bus is None:
                continue
            try:
                subject = subjects.of_pool(subjects.step_claims(request.shard), self._pool)
                raw = await self._bus.request(subject, question, within_s=_ANSWER_S)
            except BusUnavailable as error:
                why = error.message
                continue
            answer = msgspec.json.decode(raw, type=ClaimAnswer)
            if answer.granted:
                return
            raise StepFailed(StepFault(STEP_CANCELLED, f"The call was not granted: {answer.reason}"))
        raise StepFailed(StepFault(NOT_DONE, f"Nobody granted the call, so it was not made: {why}", retryable=True))
