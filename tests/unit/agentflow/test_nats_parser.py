from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from agentflow.bus.nats_parser import DeliveryParser


class Client:
    """Hears what nats-py's own parser makes of other lines."""

    def __init__(self):
        self.heard = []

    async def _process_ping(self):
        self.heard.append("PING")

    async def _process_pong(self):
        self.heard.append("PONG")


def parser_of(client):
    return DeliveryParser(client, lambda *delivery: client.heard.append(delivery))


STREAM = (
    b"PING\r\n"
    b"MSG af.a 7 5\r\nh\r\nlo\r\n"
    b"MSG af.b 8 reply.to 0\r\n\r\n"
    b"+OK\r\n"
    b"HMSG af.c 9 $JS.ACK.x 12 15\r\nNATS/1.0\r\n\r\nMSG\r\n"
    b"PONG\r\n"
    b"HMSG af.d 10 12 12\r\nNATS/1.0\r\n\r\n\r\n"
)
HEARD = [
    "PING",
    (7, b"af.a", b"", b"h\r\nlo", b""),
    (8, b"af.b", b"reply.to", b"", b""),
    (9, b"af.c", b"$JS.ACK.x", b"MSG", b"NATS/1.0\r\n\r\n"),
    "PONG",
    (10, b"af.d", b"", b"", b"NATS/1.0\r\n\r\n"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
async def test_what_arrives_is_the_same_wherever_the_bytes_are_cut(cuts):
    client = Client()
    parser = parser_of(client)
    places = [0, *sorted(cuts), len(STREAM)]

    for begin, end in pairwise(places):
        await parser.parse(STREAM[begin:end])

    assert client.heard == HEARD


@pytest.mark.parametrize("line", [b"MSG af.a x 5\r\n", b"MSG\r\n", b"MSG a b\r\n", b"NONSENSE\r\n"])
async def test_a_line_that_nobody_can_read_ends_the_connection_as_a_fault_of_the_protocol(line):
    with pytest.raises(ProtocolError):
        await parser_of(Client()).parse(line)


async def test_a_new_connection_does_not_begin_with_the_rest_of_the_old_one():
    client = Client()
    parser = parser_of(client)
    await parser.parse(b"MSG af.a 7 500\r\nhalf of")

    parser.reset()
    await parser.parse(b"PING\r\n")

    assert client.heard == ["PING"]
