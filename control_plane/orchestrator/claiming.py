"""Grants workers the one call of a tool that must not be called twice: asked over the bus, committed, then answered.

Knows only who was granted what; what follows from a grant is `agentflow.execution.claims`.
"""

from collections.abc import Awaitable, Callable

import msgspec

from agentflow.contracts.pools import may_act_for
from agentflow.contracts.step import ClaimAnswer, StepClaim
from agentflow.errors import AgentFlowError
from agentflow.execution.messages import ClaimStep, ExecutionMessage, Stamp
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId

# The state once a message is durable.
Committed = Callable[[TenantId, ExecutionId, ExecutionMessage], Awaitable[ExecutionState]]


class Claiming:
    def __init__(self, *, committed: Committed, stamp: Callable[[], Stamp]) -> None:
        self._committed = committed
        self._stamp = stamp

    async def answer(self, pool: str, raw: bytes) -> bytes:
        asked = msgspec.json.decode(raw, type=StepClaim)
        if not may_act_for(pool, asked.tenant_id):
            return msgspec.json.encode(ClaimAnswer(granted=False, reason="It is another tenant's."))
        message = ClaimStep(self._stamp(), asked.path, asked.attempt, asked.worker, asked.id, asked.undone)
        try:
            state = await self._committed(asked.tenant_id, asked.execution_id, message)
        except AgentFlowError as error:
            if error.retryable:
                raise  # unanswered: the worker asks again
            return msgspec.json.encode(ClaimAnswer(granted=False, reason=error.message))
        claimed = state.claimed.get(asked.path)
        if state.tenant != asked.tenant_id or claimed is None:
            return msgspec.json.encode(ClaimAnswer(granted=False, reason="Nobody waits for this attempt any more."))
        mine = claimed.id == asked.id
        reason = "" if mine else "The call was given to another attempt."
        return msgspec.json.encode(ClaimAnswer(granted=mine, reason=reason))
