"""HTTP heads: one reading, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.policy import Refused
from sandbox.egress.request_head import Destination, body_length, destination, parse_head, written


def head(*lines: str):
    return parse_head("\r\n".join([*lines, "", ""]).encode("latin-1"))


def refusal(function, *arguments) -> str:
    with pytest.raises(Refused) as refused:
        function(*arguments)
    return refused.value.code


def test_an_absolute_target_and_a_plain_one_with_host_lead_to_the_same_place():
    absolute = head("GET http://Allowed.com/a?b=1 HTTP/1.1", "Host: allowed.com")
    plain = head("GET /a?b=1 HTTP/1.1", "Host: allowed.com")

    assert destination(absolute) == destination(plain) == Destination("http", "allowed.com", 80, "/a?b=1")
    assert destination(head("GET https://allowed.com HTTP/1.1")) == Destination("https", "allowed.com", 443, "/")
    assert destination(head("GET http://allowed.com?q HTTP/1.1")).path == "/?q"


@pytest.mark.parametrize(
    "lines",
    [
        ["GET http://allowed.com/ HTTP/1.1", "Host: evil.com"],
        ["GET http://allowed.com:80/ HTTP/1.1", "Host: allowed.com:81"],
    ],
)
def test_a_host_header_that_says_something_else_is_refused(lines):
    assert refusal(lambda: destination(head(*lines))) == "host_mismatch"


def test_a_request_in_a_tunnel_must_be_for_the_tunnels_end():
    inside = head("GET / HTTP/1.1", "Host: evil.com")

    assert refusal(lambda: destination(inside, ("http", "allowed.com", 80))) == "host_mismatch"
    assert destination(head("GET / HTTP/1.1", "Host: allowed.com"), ("https", "allowed.com", 443)).scheme == "https"


@pytest.mark.parametrize("scheme", ["file", "gopher", "ftp", "ws", "data"])
def test_only_http_and_https_leave(scheme):
    assert refusal(lambda: destination(head(f"GET {scheme}://allowed.com/ HTTP/1.1"))) == "scheme_denied"


@pytest.mark.parametrize(
    "lines",
    [
        ["GET / HTTP/1.1"],
        ["GET / HTTP/1.1", "Host: a.com", "Host: b.com"],
        ["GET  / HTTP/1.1", "Host: a.com"],
        ["GET / HTTP/2.0", "Host: a.com"],
        ["PRI * HTTP/2.0"],
        ["GET / HTTP/1.1", "Host : a.com"],
        ["GET / HTTP/1.1", "Host: a.com", " folded: x"],
        ["GET / HTTP/1.1", "Host: a.com", "X\nEvil: y"],
        ["GET / HTTP/1.1", "Host: a.com", "X: a\0b"],
        ["GET /\tx HTTP/1.1", "Host: a.com"],
        ["GET / HTTP/1.1", "Host: a.com", "X: a\nHost: evil.com"],
        ["GET / HTTP/1.1", *["X: 1"] * 200, "Host: a.com"],
    ],
)
def test_a_head_that_two_readers_could_read_differently_is_refused(lines):
    assert refusal(lambda: destination(head(*lines))) == "request_malformed"


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Content-Length: -1"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5, 5"],
    ],
)
def test_a_body_of_two_lengths_is_how_requests_are_smuggled(headers):
    assert refusal(body_length, head("POST / HTTP/1.1", "Host: a.com", *headers)) == "request_malformed"


def test_user_information_in_a_target_is_refused():
    assert refusal(lambda: destination(head("GET http://allowed.com@evil.com/ HTTP/1.1"))) == "name_invalid"


def test_what_is_sent_on_is_written_anew():
    asked = head(
        "POST http://Allowed.com/x HTTP/1.1", "HOST: allowed.com", "Connection: close, X-Hop", "X-Hop: 1",
        "Upgrade: websocket", "Proxy-Authorization: Basic eA==", "authorization: mine",
        "Content-Length: 2", "X-Keep: 1",
    )  # fmt: skip

    sent = written(asked, destination(asked), {"Authorization": "Bearer real"}).decode()

    assert sent.split("\r\n") == [
        "POST /x HTTP/1.1", "Host: allowed.com", "X-Keep: 1", "Authorization: Bearer real", "Content-Length: 2",
        "Connection: close", "", "",
    ]  # fmt: skip


@given(st.binary(max_size=400))
def test_any_bytes_are_a_head_or_a_refusal(raw):
    try:
        found = parse_head(raw + b"\r\n\r\n")
        to = destination(found)
        body_length(found)
    except Refused:
        return
    assert "\r" not in to.path
    assert " " not in to.path
