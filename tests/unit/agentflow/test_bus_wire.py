"""What the bus writes to and reads from a NATS connection, and how much it asks for; no server needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.bus import wire
from agentflow.bus.pull import BATCH_MAX, credit_wanted

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def test_a_publication_with_headers_states_both_lengths() -> None:
    headers = wire.header_block({"Nats-Msg-Id": "one"})

    command = wire.publication("agents.a.in", b"{}", reply="_INBOX.x.1", headers=headers)

    assert headers == b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    assert command == b"HPUB agents.a.in _INBOX.x.1 30 32\r\n" + headers + b"{}\r\n"


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "agents.*.in", "agents.>"])
def test_a_subject_that_could_say_something_else_to_the_server_is_refused(subject: str) -> None:
    with pytest.raises(wire.MalformedEnvelope):
        wire.publication(subject, b"")


@pytest.mark.parametrize("value", ["one\r\nNats-Rollup: all", "one\ntwo"])
def test_a_header_value_cannot_smuggle_in_another_header(value: str) -> None:
    with pytest.raises(wire.MalformedEnvelope):
        wire.header_block({"Nats-Msg-Id": value})


def test_a_trace_context_is_written_only_for_ids_that_w3c_would_accept() -> None:
    assert wire.traceparent(TRACE, SPAN) == f"00-{TRACE}-{SPAN}-01"
    assert wire.traceparent(TRACE.upper(), SPAN) is None
    assert wire.traceparent("0" * 32, SPAN) is None
    assert wire.traceparent(TRACE, "") is None


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.AF_AGENTS.agent_a.3.17.21.1700000000.5",
        b"$JS.ACK.hub.ACCHASH.AF_AGENTS.agent_a.3.17.21.1700000000.5.random",
    ],
)
def test_the_position_of_a_message_is_read_from_both_forms_of_reply_subject(reply: bytes) -> None:
    assert wire.is_delivery(reply)
    assert wire.position(reply) == wire.Position(deliveries=3, sequence=17, pending=5)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 4\r\n\r\n", wire.Status(100, "Idle Heartbeat", None)),
        (
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 12\r\nNats-Pending-Bytes: 0\r\n\r\n",
            wire.Status(408, "Request Timeout", 12),
        ),
        (b"NATS/1.0 409 Consumer Deleted\r\n\r\n", wire.Status(409, "Consumer Deleted", None)),
        (b"NATS/1.0 503\r\n\r\n", wire.Status(503, "", None)),
        (b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_status_is_told_from_an_ordinary_message(headers: bytes, status: wire.Status | None) -> None:
    assert wire.status(headers) == status


def test_credit_is_renewed_when_half_of_it_is_used_and_not_before() -> None:
    assert credit_wanted(in_flight_max=64, unsettled=0, outstanding=0) == 64
    assert credit_wanted(in_flight_max=64, unsettled=0, outstanding=33) == 0
    assert credit_wanted(in_flight_max=64, unsettled=0, outstanding=32) == 32


def test_a_single_free_place_is_asked_for_at_once() -> None:
    assert credit_wanted(in_flight_max=64, unsettled=63, outstanding=0) == 1


@given(
    in_flight_max=st.integers(1, 5_000),
    moves=st.lists(st.tuples(st.sampled_from(["deliver", "settle", "expire"]), st.integers(1, 2_000)), max_size=60),
)
def test_credit_and_unsettled_deliveries_never_exceed_the_limit_together(
    in_flight_max: int, moves: list[tuple[str, int]]
) -> None:
    unsettled = outstanding = 0
    for move, amount in moves:
        outstanding += credit_wanted(in_flight_max=in_flight_max, unsettled=unsettled, outstanding=outstanding)
        assert unsettled + outstanding <= in_flight_max
        assert outstanding <= BATCH_MAX
        assert outstanding > 0 or unsettled == in_flight_max  # never idle while there is room
        if move == "deliver":
            delivered = min(amount, outstanding)
            outstanding, unsettled = outstanding - delivered, unsettled + delivered
        elif move == "settle":
            unsettled -= min(amount, unsettled)
        else:
            outstanding -= min(amount, outstanding)
