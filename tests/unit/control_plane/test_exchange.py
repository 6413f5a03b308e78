"""The outermost layer alone: what it does to answers of applications that are made up here."""

import structlog
from structlog.testing import capture_logs

from control_plane.api.exchange import Exchange, etag_of, matches


async def exchanged(app, *, method="GET", **headers):
    """The messages that a server is given for one request."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/x", "headers": given}
    await Exchange(app, lambda: "fresh")(scope, receive, send)
    return sent


def answering(*parts, kind=b"application/json", status=200):
    async def app(scope, receive, send):
        structlog.get_logger().warning("inside")
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for at, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": at < len(parts) - 1})

    return app


async def test_whatever_is_logged_in_a_request_carries_its_id():
    structlog.contextvars.clear_contextvars()
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        await exchanged(answering(b"{}"), x_request_id="mine")

    assert [(line["event"], line["request_id"]) for line in logs] == [("inside", "mine"), ("request.answered", "mine")]


async def test_a_stream_passes_through_untouched_and_at_once():
    parts = [b"x" * 10_000, b"y"]
    start, *body = await exchanged(answering(*parts), accept_encoding="gzip")

    assert [part["body"] for part in body] == parts
    assert not {b"etag", b"content-encoding"} & {name for name, _ in start["headers"]}


async def test_an_answer_to_a_write_and_an_error_have_no_etag():
    for sent in (await exchanged(answering(b"{}"), method="POST"), await exchanged(answering(b"{}", status=404))):
        assert b"etag" not in dict(sent[0]["headers"])


async def test_what_is_no_json_is_left_alone():
    start, body = await exchanged(answering(b"x" * 5_000, kind=b"text/plain"), accept_encoding="gzip")

    assert body["body"] == b"x" * 5_000
    assert b"etag" not in dict(start["headers"])


def test_tags_match_in_lists_as_stars_and_in_either_encoding():
    tag = etag_of(b"{}")
    assert matches(b"*", tag)
    assert matches(b'"a", ' + tag, tag)
    assert matches(b"W/" + tag, tag)
    assert matches(tag[:-1] + b'-gzip"', tag)
    assert not matches(b'"a", "b"', tag)
    assert etag_of(b"{ }") != tag
