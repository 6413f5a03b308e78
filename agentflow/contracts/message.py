"""The envelope of everything on the bus (seed contract "Message"), sealed with a hash of its canonical form.

Made and opened by `agentflow.bus`; the payload's own shape is named by its `v` field (see `contracts.step`), and it
stays as it is written until somebody reads it. Nearly all we send is written canonically, so both sides can hash the
bytes as they are. What cannot be (a float such as 1.0 must stay one) is hashed in its canonical form beside them.
"""

import hashlib
from typing import Any, Literal, TypeVar

import msgspec

from agentflow.canonical import NotCanonical, canonical, is_plain, sorted_json
from agentflow.clock import rfc3339
from agentflow.errors import Invalid
from agentflow.ids import MessageId, TraceId

Kind = Literal["request", "response", "event", "control"]
T = TypeVar("T")
Shape = type[T]  # the class below has a `type` of its own


class Cost(msgspec.Struct, frozen=True):
    tokens: int = 0
    dollars: float = 0.0


NO_COST = Cost()


class Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """Use `seal` to make one: the hash covers every other field."""

    id: MessageId
    trace_id: TraceId
    span_id: str
    sender: str
    to: str
    type: Kind
    payload: msgspec.Raw
    metadata: dict[str, Any]
    cost: Cost
    ts: str
    envelope_hash: str = ""

    def read(self, shape: Shape[T]) -> T:
        """The payload as `shape`. Raises `msgspec.DecodeError` where it is something else."""
        return msgspec.json.decode(self.payload, type=shape)


class TamperedMessage(Invalid):
    code = "AF1005"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"A message on the bus was refused: {reason}.",
            hint="Find the sender in the log; every sender must seal messages with `agentflow.contracts.message.seal`.",
        )


def payload_of(struct: msgspec.Struct, *values: Any) -> msgspec.Raw | dict[str, Any]:
    """A struct of ours as a payload; `values` are those of its fields that hold what people made."""
    if all(map(is_plain, values)):
        return msgspec.Raw(sorted_json(struct))
    plain: dict[str, Any] = msgspec.to_builtins(struct)
    return plain


def seal(
    *,
    id: MessageId,
    trace_id: TraceId,
    span_id: str,
    sender: str,
    to: str,
    type: Kind,
    payload: msgspec.Raw | dict[str, Any],
    metadata: dict[str, Any],
    at_ms: int,
    cost: Cost = NO_COST,
) -> Message:
    """`payload` is data, or bytes from `payload_of`, which are canonical."""
    written, hashed = _written(payload)
    message = Message(id, trace_id, span_id, sender, to, type, written, metadata, cost, rfc3339(at_ms))
    return msgspec.structs.replace(message, envelope_hash=_hash(message, hashed))


def unsealed(
    *,
    id: MessageId,
    trace_id: TraceId,
    span_id: str,
    sender: str,
    to: str,
    type: Kind,
    payload: msgspec.Raw | dict[str, Any],
    metadata: dict[str, Any],
    at_ms: int,
    cost: Cost = NO_COST,
) -> Message:
    """For a `bundle`, which is sealed as a whole; `sealed` where it has to travel by itself after all."""
    written, _ = _written(payload)
    return Message(id, trace_id, span_id, sender, to, type, written, metadata, cost, rfc3339(at_ms))


def sealed(message: Message) -> Message:
    return msgspec.structs.replace(message, envelope_hash=envelope_hash(message))


def _written(payload: msgspec.Raw | dict[str, Any]) -> tuple[msgspec.Raw, msgspec.Raw]:
    """As it travels, and as it is hashed."""
    if not isinstance(payload, dict):
        return payload, payload
    if is_plain(payload):
        plain = msgspec.Raw(sorted_json(payload))
        return plain, plain
    return msgspec.Raw(_encode(payload)), msgspec.Raw(canonical(payload))


def envelope_hash(message: Message) -> str:
    """SHA-256 over the RFC 8785 form of every field but the hash itself."""
    return _hash(message, msgspec.Raw(canonical(message.read(dict[str, Any]))))


class _Body(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A message without its hash."""

    cost: dict[str, float]
    sender: str
    id: MessageId
    metadata: dict[str, Any]
    payload: msgspec.Raw
    span_id: str
    to: str
    trace_id: TraceId
    ts: str
    type: Kind


def _body(message: Message, payload: msgspec.Raw) -> _Body:
    cost = message.cost
    # RFC 8785 writes 0.0 as `0`, and a reader knows that dollars are a float.
    dollars = int(cost.dollars) if cost.dollars.is_integer() else cost.dollars
    return _Body(
        {"dollars": dollars, "tokens": cost.tokens},
        message.sender,
        message.id,
        message.metadata,
        payload,
        message.span_id,
        message.to,
        message.trace_id,
        message.ts,
        message.type,
    )


def _hash(message: Message, payload: msgspec.Raw) -> str:
    body = _body(message, payload)
    written = sorted_json(body)
    if not (is_plain(body.metadata) and is_plain(body.cost)):
        written = canonical(msgspec.json.decode(written))
    return hashlib.sha256(written).hexdigest()


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Message)

_AFTER_COST = b',"from":'  # in canonical order the hash comes between; a cost holds nothing but numbers
_HASH = b',"envelope_hash":"%b"'
_HASH_BYTES = len(_HASH % (b"0" * 64))


def encode(message: Message) -> bytes:
    body = sorted_json(_body(message, message.payload))
    at = body.index(_AFTER_COST)
    return body[:at] + _HASH % message.envelope_hash.encode() + body[at:]


def decode(raw: bytes) -> Message:
    """Read a message and check its seal; anything else is refused, never half-believed."""
    try:
        message = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TamperedMessage(f"it is not a Message ({error})") from None
    if not _is_sealed(message, raw):
        raise TamperedMessage(f"the envelope hash of {message.id} does not match its content")
    return message


def _is_sealed(message: Message, raw: bytes) -> bool:
    at = raw.find(_AFTER_COST) - _HASH_BYTES
    if at > 0 and hashlib.sha256(raw[:at] + raw[at + _HASH_BYTES :]).hexdigest() == message.envelope_hash:
        return True
    try:
        return message.envelope_hash == envelope_hash(message)
    except (msgspec.DecodeError, UnicodeDecodeError, NotCanonical):
        return False
