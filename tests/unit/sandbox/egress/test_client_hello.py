"""The server's name in a TLS hello, as real clients write it and as attackers would."""

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.client_hello import HELLO_BYTES_MAX, server_name
from sandbox.egress.policy import Refused


def hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def extended(raw: bytes, kind: int, body: bytes) -> bytes:
    """The same hello with one extension more, all lengths put right."""
    record, message = raw[:5], bytearray(raw[5:])
    at = 4 + 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2])
    at += 1 + message[at]
    extensions = int.from_bytes(message[at : at + 2])
    extra = kind.to_bytes(2) + len(body).to_bytes(2) + body
    message[at : at + 2] = (extensions + len(extra)).to_bytes(2)
    message += extra
    message[1:4] = (len(message) - 4).to_bytes(3)
    return record[:3] + len(message).to_bytes(2) + bytes(message)


def refusal(raw: bytes) -> str:
    with pytest.raises(Refused) as refused:
        server_name(raw)
    return refused.value.code


def test_the_name_is_read_from_a_real_hello():
    assert server_name(hello("Allowed.COM")) == "allowed.com"


def test_a_hello_that_arrives_byte_by_byte_is_waited_for():
    raw = hello("allowed.com")

    assert {server_name(raw[:cut]) for cut in range(len(raw))} == {None}


def test_a_hello_cut_into_many_records_is_put_together():
    raw = hello("allowed.com")
    pieces = [raw[5:][at : at + 7] for at in range(0, len(raw) - 5, 7)]

    assert server_name(b"".join(raw[:3] + len(piece).to_bytes(2) + piece for piece in pieces)) == "allowed.com"


def test_tls_without_a_name_is_refused():
    assert refusal(hello(None)) == "sni_missing"


def test_an_encrypted_hello_is_refused():
    assert refusal(extended(hello("allowed.com"), 0xFE0D, b"\0" * 8)) == "ech_denied"


def test_two_names_are_one_too_many():
    other = b"\0\0\x08evil.com"
    assert refusal(extended(hello("allowed.com"), 0, len(other).to_bytes(2) + other)) == "sni_missing"


def test_a_hello_without_end_is_given_up():
    assert refusal(b"\x16\x03\x01\x00\x00" * (HELLO_BYTES_MAX // 5 + 1)) == "tls_malformed"
    assert refusal(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff") == "tls_malformed"
    assert refusal(b"GET / HTTP/1.1\r\n") == "tls_malformed"


@given(st.binary(max_size=300), st.integers(0, 200))
def test_any_bytes_are_a_name_a_wait_or_a_refusal(noise, at):
    raw = bytearray(hello("allowed.com"))
    raw[at : at + len(noise)] = noise
    with contextlib.suppress(Refused):
        server_name(bytes(raw))
