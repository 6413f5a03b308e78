"""Brings large values into a step and out of it: the agent never knows that they travelled beside the message.

Used by `mailbox` around each step, inside its timeout. What cannot be fetched or kept is the step's fault like any
other; a value that is lost for good is `artifact_lost`, which no further attempt can cure.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.canonical import ensure_canonical
from agentflow.contracts.claims import joined
from agentflow.contracts.message import Message
from agentflow.contracts.step import StepFault, StepRequest
from agentflow.errors import Rejected
from agentflow.ports import ArtifactDamaged, ArtifactLost, Shelf
from worker.outcome import StepFailed

log = structlog.get_logger(__name__)

_encode = msgspec.json.Encoder().encode


class LargeValues:
    def __init__(self, claims: ClaimCheck) -> None:
        self._claims = claims

    async def whole(self, request: StepRequest, asked: Message) -> StepRequest:
        """The request as the agent should see it."""
        if not request.claims:
            return request
        try:
            value = await self._claims.whole(_shelf(request, asked), joined(request.input, request.claims))
        except (ArtifactLost, ArtifactDamaged) as error:
            raise StepFailed(StepFault("artifact_lost", error.message)) from error
        except (LookupError, TypeError):
            raise StepFailed(StepFault("artifact_lost", "The message names a large value without a place.")) from None
        return msgspec.structs.replace(request, input=value, claims=())

    async def claimed(self, request: StepRequest, asked: Message, output: Any) -> Any:
        """The output, or a claim on it where it is too large to travel. What is not JSON is left to the report."""
        try:
            written = _encode(output)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return output
        if len(written) <= limits.CLAIM_CHECK_BYTES:
            return output
        if len(written) > limits.VALUE_BYTES_MAX:
            large = f"The output has {len(written)} bytes; a step may answer with {limits.VALUE_BYTES_MAX}."
            raise StepFailed(StepFault("output_too_large", large))
        try:
            await asyncio.to_thread(ensure_canonical, output)
        except Rejected as error:
            raise StepFailed(StepFault("output_invalid", f"{error.message} {error.hint}")) from None
        log.info("output.kept_beside", execution=request.execution_id, step=request.path, bytes=len(written))
        return await self._claims.kept(_shelf(request, asked), written)


def _shelf(request: StepRequest, asked: Message) -> Shelf:
    return Shelf(str(asked.metadata.get("tenant_id", "")), request.execution_id)
