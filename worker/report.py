"""A step's result as the message its shard's owner waits for, to be sealed on its way. Pure; called by `mailbox` once a
step ended."""

from typing import Any

import msgspec

from agentflow import limits
from agentflow.canonical import NotCanonical
from agentflow.contracts.claims import Claim, Claimed
from agentflow.contracts.message import NO_COST, Cost, Message, payload_of, unsealed
from agentflow.contracts.step import StepFault, StepRequest, StepResult
from agentflow.contracts.usage import MICRODOLLARS, Usage
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ids import AgentName, MessageId, WorkerId

_encode = msgspec.json.Encoder().encode


class Ending(msgspec.Struct, frozen=True):
    """How a step ended here: an output or a fault, and when."""

    started_at_ms: int
    finished_at_ms: int
    output: Any = None
    fault: StepFault | None = None
    claim: Claim | None = None  # in the place of an output that is too large to travel
    usage: tuple[Usage, ...] = ()
    workspace: WorkspaceLeft | None = None


def dedup_id(request: StepRequest) -> str:
    return f"{request.execution_id}/{request.path}#{request.attempt}/result"


def report(
    *, id: MessageId, asked: Message, request: StepRequest, ending: Ending, agent: AgentName, worker: WorkerId
) -> Message:  # fmt: skip
    """The answer to `asked`. An output that cannot travel becomes a fault: the step must not stay without an end."""
    fault = ending.fault or _obstacle(ending.output)
    output = ending.output if fault is None else None
    try:
        return _sealed(id, asked, request, ending, output, fault, agent, worker)
    except NotCanonical as error:
        fault = StepFault("output_invalid", f"{error.message} {error.hint}")
        return _sealed(id, asked, request, ending, None, fault, agent, worker)


def _obstacle(output: Any) -> StepFault | None:
    try:
        size = len(_encode(output))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return StepFault("output_invalid", f"The output is not JSON: {error}.")
    if size > limits.PAYLOAD_BYTES_MAX:
        large = f"The output has {size} bytes; a step may answer with {limits.PAYLOAD_BYTES_MAX}."
        return StepFault("output_too_large", large)
    return None


def _sealed(
    id: MessageId,
    asked: Message,
    request: StepRequest,
    ending: Ending,
    output: Any,
    fault: StepFault | None,
    agent: AgentName,
    worker: WorkerId,
) -> Message:
    claim = ending.claim
    result = StepResult(
        execution_id=request.execution_id,
        path=request.path,
        attempt=request.attempt,
        worker=worker,
        started_at_ms=ending.started_at_ms,
        finished_at_ms=ending.finished_at_ms,
        output=output,
        fault=fault,
        usage=tuple(msgspec.structs.replace(used, agent=agent) for used in ending.usage),
        claims=(Claimed((), claim.ref.sha256, claim.ref.bytes),) if claim is not None and fault is None else (),
        workspace=ending.workspace,
    )
    payload = payload_of(result, output)
    if isinstance(payload, dict):
        # Past `payload_of`, which would quietly turn what is not JSON (dates, sets, bytes) into something that is.
        payload["output"] = output
    return unsealed(
        id=id,
        trace_id=asked.trace_id,
        span_id=asked.span_id,
        sender=agent,
        to=asked.sender,
        type="response",
        payload=payload,
        metadata={
            "workflow": request.workflow,
            "execution_id": request.execution_id,
            "step": request.path,
            "attempt": request.attempt,
            "worker": worker,
        },
        at_ms=ending.finished_at_ms,
        cost=_cost(ending.usage),
    )


def _cost(usage: tuple[Usage, ...]) -> Cost:
    """For whoever watches the bus: what is counted is in the result, exactly."""
    if not usage:
        return NO_COST
    known = sum(used.microdollars or 0 for used in usage)
    return Cost(sum(used.tokens for used in usage), known / MICRODOLLARS)
