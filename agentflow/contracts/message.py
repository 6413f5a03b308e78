"""The envelope of everything on the bus (seed contract "Message"), sealed with a hash of its canonical form.

Made and opened by `agentflow.bus`; the payload's own shape is named by its `v` field (see `contracts.step`).
"""

from typing import Any, Literal

import msgspec

from agentflow.canonical import sha256_hex
from agentflow.clock import rfc3339
from agentflow.errors import Invalid
from agentflow.ids import MessageId, TraceId

Kind = Literal["request", "response", "event", "control"]


class Cost(msgspec.Struct, frozen=True):
    tokens: int = 0
    dollars: float = 0.0


class Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """Use `seal` to make one: the hash covers every other field."""

    id: MessageId
    trace_id: TraceId
    span_id: str
    sender: str
    to: str
    type: Kind
    payload: dict[str, Any]
    metadata: dict[str, Any]
    cost: Cost
    ts: str
    envelope_hash: str = ""


class TamperedMessage(Invalid):
    code = "AF1005"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"A message on the bus was refused: {reason}.",
            hint="Find the sender in the log; every sender must seal messages with `agentflow.contracts.message.seal`.",
        )


def seal(
    *,
    id: MessageId,
    trace_id: TraceId,
    span_id: str,
    sender: str,
    to: str,
    type: Kind,
    payload: dict[str, Any],
    metadata: dict[str, Any],
    at_ms: int,
    cost: Cost | None = None,
) -> Message:
    message = Message(
        id, trace_id, span_id, sender, to, type, payload, metadata, cost or Cost(), rfc3339(at_ms)
    )  # fmt: skip
    return msgspec.structs.replace(message, envelope_hash=envelope_hash(message))


def envelope_hash(message: Message) -> str:
    """SHA-256 over the RFC 8785 form of every field but the hash itself."""
    return sha256_hex(
        {
            "id": message.id,
            "trace_id": message.trace_id,
            "span_id": message.span_id,
            "from": message.sender,
            "to": message.to,
            "type": message.type,
            "payload": message.payload,
            "metadata": message.metadata,
            "cost": {"tokens": message.cost.tokens, "dollars": _canonical_number(message.cost.dollars)},
            "ts": message.ts,
        }
    )


def _canonical_number(value: float) -> float:
    """RFC 8785 writes 0.0 as `0`; saying so beforehand keeps most messages on the fast path."""
    return int(value) if value.is_integer() else value


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(raw: bytes) -> Message:
    """Read a message and check its seal; anything else is refused, never half-believed."""
    try:
        message = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TamperedMessage(f"it is not a Message ({error})") from None
    if message.envelope_hash != envelope_hash(message):
        raise TamperedMessage(f"the envelope hash of {message.id} does not match its content")
    return message
