import hashlib
import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.message import Cost, Message, TamperedMessage, decode, encode, envelope_hash, seal
from agentflow.ids import MessageId, TraceId


def a_message(**changed) -> Message:
    fields = {
        "id": MessageId("01ARYZ6S410000000000000000"),
        "trace_id": TraceId("0" * 32),
        "span_id": "0" * 16,
        "sender": "orchestrator",
        "to": "classifier",
        "type": "request",
        "payload": {"ticket": "grüße", "n": 3},
        "metadata": {"attempt": 1},
        "at_ms": 1_700_000_000_123,
    }
    return seal(**{**fields, **changed})


def test_a_sealed_message_reads_back_equal_and_uses_the_contracts_field_names():
    message = a_message()

    assert decode(encode(message)) == message
    on_the_wire = msgspec.json.decode(encode(message))
    assert set(on_the_wire) == {
        "id", "trace_id", "span_id", "from", "to", "type", "payload", "metadata", "cost", "ts", "envelope_hash",
    }  # fmt: skip
    assert on_the_wire["ts"] == "2023-11-14T22:13:20.123Z"


def test_the_hash_of_a_known_message_never_changes():
    # Pinned: stored messages must verify for as long as they are kept.
    assert a_message().envelope_hash == "b9e94310f7c4ea93996f9266c8b7e38a996ad6da340ff1e97b76845f7e3e4e8e"


@pytest.mark.parametrize(
    "field", ["id", "trace_id", "span_id", "from", "to", "type", "payload", "metadata", "cost", "ts"]
)
def test_a_change_to_any_field_breaks_the_seal(field):
    changed = {
        "type": "event",
        "payload": {"ticket": "other"},
        "metadata": {},
        "cost": {"tokens": 1, "dollars": 0.0},
    }
    wire = msgspec.json.decode(encode(a_message()))
    wire[field] = changed.get(field, "other")

    with pytest.raises(TamperedMessage):
        decode(msgspec.json.encode(wire))


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53) + 1, 2**53 - 1)
values = st.recursive(st.none() | st.text() | numbers, st.lists, max_leaves=5)


@given(st.dictionaries(st.text(), values))
def test_a_payload_arrives_as_it_was_sent_and_is_hashed_in_its_canonical_form(payload):
    message = a_message(payload=payload)
    wire = msgspec.json.decode(encode(message))
    arrived = decode(encode(message)).read(dict)
    sealed = wire.pop("envelope_hash")

    assert arrived == payload
    assert {key: type(value) for key, value in arrived.items()} == {key: type(value) for key, value in payload.items()}
    assert sealed == message.envelope_hash == hashlib.sha256(rfc8785.dumps(wire)).hexdigest()


def test_a_message_in_another_order_and_spacing_is_read_all_the_same():
    message = a_message(payload={"n": 1, "x": 1.0})
    wire = msgspec.json.decode(encode(message))

    assert decode(json.dumps(dict(reversed(wire.items())), indent=2).encode()).id == message.id


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_as_such(raw):
    with pytest.raises(TamperedMessage):
        decode(raw)


@given(tokens=st.integers(0, 10**9), dollars=st.floats(0, 1e6))
def test_costs_survive_the_wire_and_are_covered_by_the_hash(tokens, dollars):
    message = a_message(cost=Cost(tokens, dollars))

    assert decode(encode(message)).cost == Cost(tokens, dollars)
    assert envelope_hash(message) == message.envelope_hash
