"""Between replicas: what reached one, for an execution whose shard another one owns.

Asked and answered over the bus, and answered only after the commit, so a caller is told nothing that could be lost.
Without an answer nobody knows what became of it: every message here may be sent again and changes nothing twice.
"""

from typing import Any

import msgspec

from agentflow.contracts.audit import AuditEntry
from agentflow.contracts.claims import Claimed, joined, parted
from agentflow.errors import AgentFlowError, Bug, Conflict, NotFound, OverBudget, Rejected, Unavailable
from agentflow.execution import messages
from agentflow.execution.messages import ExecutionMessage, Stamp
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import ShardLost

_KINDS: dict[str, type[ExecutionMessage]] = {
    kind.__name__: kind
    for kind in (
        messages.Start,
        messages.Fork,
        messages.Admitted,
        messages.ClaimStep,
        messages.ChildEnded,
        messages.TimeReached,
        messages.TaskAnswered,
        messages.Signal,
        messages.Pause,
        messages.Resume,
        messages.Cancel,
        messages.Terminate,
        messages.UpdateVars,
        messages.SetBreakpoints,
        messages.RetryFailed,
        messages.Move,
    )
}
_FAMILIES: tuple[type[AgentFlowError], ...] = (NotFound, Conflict, OverBudget, Rejected, Unavailable)


def subject(shard: int) -> str:
    return f"control.shards.{shard}"


class Order(msgspec.Struct, frozen=True):
    """A message for an execution of the shard. `body` is all of it but the stamp, which the owner makes."""

    tenant: TenantId
    execution: ExecutionId
    kind: str
    body: dict[str, Any]
    only_at: int | None = None
    claims: tuple[Claimed, ...] = ()  # of `body`: what is too large to travel
    audit: AuditEntry | None = None
    v: int = 1


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Committed under `execution`, or refused: the fields of an error."""

    execution: ExecutionId | None = None
    family: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""


def order(
    tenant: TenantId,
    execution: ExecutionId,
    message: ExecutionMessage,
    only_at: int | None = None,
    audit: AuditEntry | None = None,
) -> bytes:
    body, claims = parted(message)
    del body["stamp"]
    return msgspec.json.encode(Order(tenant, execution, type(message).__name__, body, only_at, tuple(claims), audit))


def read_order(raw: bytes) -> Order:
    return msgspec.json.decode(raw, type=Order)


def message_of(received: Order, stamp: Stamp) -> ExecutionMessage:
    body = {**joined(received.body, received.claims), "stamp": msgspec.to_builtins(stamp)}
    return msgspec.convert(body, _KINDS[received.kind])


def taken(execution: ExecutionId) -> bytes:
    return msgspec.json.encode(Answer(execution))


def refused(error: AgentFlowError) -> bytes:
    family = next((family for family in _FAMILIES if isinstance(error, family)), Bug)
    answer = Answer(family=family.__name__, code=error.code, message=error.message, hint=error.hint)
    return msgspec.json.encode(answer)


def read_answer(raw: bytes, shard: int) -> ExecutionId:
    """Under which id it was committed; raises what the owner raised."""
    answer = msgspec.json.decode(raw, type=Answer)
    if answer.execution is not None:
        return answer.execution
    if answer.code == ShardLost.code:
        raise ShardLost([shard])
    family = next((family for family in _FAMILIES if family.__name__ == answer.family), Bug)
    error = family(answer.message, hint=answer.hint)
    error.code = answer.code  # type: ignore[misc]  # the owner's own, so that the caller sees the same page
    raise error
