"""What every HTTP exchange has in common, whatever the route: its id, the version it speaks, its ETag, its encoding.

The outermost layer, in raw ASGI because the hot routes pay for it: headers are read once, and an answer is only held
back where something has to be known of its whole body (the ETag of a GET, or its size before it is compressed).
Streams pass through untouched.
"""

import asyncio
import hashlib
import re
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentflow import limits
from control_plane.api.errors import NotAcceptable, problem_response

VERSIONED = b"application/vnd.agentflow.v1+json"
_ANY_VERSION = re.compile(rb"application/vnd\.agentflow\.[^,;\s]*")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_JSON = b"application/json"
_GZIPPED = b'-gzip"'
# Of every answer, whatever it is: it is no page, it holds nothing to be run, and no other page may frame it or read it.
_CLOSED = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")

_log = structlog.get_logger(__name__)


class Exchange:
    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        accept = encodings = known = given = b""
        for name, value in scope["headers"]:
            if name == b"accept":
                accept = value if not accept else accept + b"," + value
            elif name == b"accept-encoding":
                encodings = value
            elif name == b"if-none-match":
                known = value if not known else known + b"," + value
            elif name == b"x-request-id":
                given = value
        request = given if given and _REQUEST_ID.fullmatch(given) else self._new_id().encode()
        structlog.contextvars.bind_contextvars(request_id=request.decode())
        read = scope["method"] in ("GET", "HEAD")
        asked = _version_asked(accept)
        answer = _Answer(
            send,
            request,
            known=known if read else None,
            gzip=b"gzip" in encodings,
            versioned=bool(asked),
            closed=(*_CLOSED, _ONLY_TLS) if scope.get("scheme") == "https" else _CLOSED,
        )
        if asked is None:
            await problem_response(NotAcceptable(accept.decode("latin-1")))(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)
        _log.debug("request.answered", method=scope["method"], path=scope["path"], status=answer.status)


def _version_asked(accept: bytes) -> bytes | None:
    """The version a caller named, empty where it named none; None where it takes nothing that we have."""
    if b"vnd.agentflow" not in accept:
        return b""
    named = {each.lower() for each in _ANY_VERSION.findall(accept)}
    if VERSIONED in named:
        return VERSIONED
    return b"" if b"application/json" in accept or b"*/*" in accept or b"application/*" in accept else None


class _Answer:
    """The `send` that the application is given."""

    __slots__ = ("_closed", "_gzip", "_known", "_request", "_send", "_start", "_versioned", "status")

    def __init__(
        self,
        send: Send,
        request: bytes,
        *,
        known: bytes | None,
        gzip: bool,
        versioned: bool,
        closed: tuple[tuple[bytes, bytes], ...] = _CLOSED,
    ) -> None:
        self._send = send
        self._closed = closed
        self._request = request
        self._known = known  # ETags the caller has; None where the request is no read
        self._gzip = gzip
        self._versioned = versioned
        self._start: Message | None = None
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = headers = list(message.get("headers", ()))
            headers.append((b"x-request-id", self._request))
            headers += self._closed
            if self._known is None and not self._gzip and not self._versioned:
                await self._send(message)
            else:
                self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if not message.get("more_body"):
                message = await self._whole(start, message)
            await self._send(start)
        await self._send(message)

    async def _whole(self, start: Message, message: Message) -> Message:
        """The one and only part of a body; changes `start` to what follows from it."""
        headers: list[tuple[bytes, bytes]] = start["headers"]
        body: bytes = message.get("body", b"")
        kind = tag = b""
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"etag":
                tag = value
        if b"json" not in kind:
            return message
        if self._versioned and kind.startswith(_JSON):
            headers = _without(headers, b"content-type")
            headers.append((b"content-type", VERSIONED))
        headers.append((b"vary", b"Accept, Accept-Encoding"))
        squeezed = self._gzip and len(body) >= limits.GZIP_BYTES_MIN
        start["headers"] = headers
        if self._known is not None and start["status"] == 200:
            tag = tag or etag_of(body)
            known = bool(self._known) and matches(self._known, tag)
            if squeezed:
                tag = tag[:-1] + _GZIPPED  # other bytes, so another strong tag
            start["headers"] = headers = [*_without(headers, b"etag"), (b"etag", tag)]
            headers.append((b"cache-control", b"private, no-cache"))
            if known:
                self.status = start["status"] = 304
                start["headers"] = _without(_without(headers, b"content-length"), b"content-type")
                return {"type": "http.response.body", "body": b""}
        if squeezed:
            body = await _compressed(body)
            start["headers"] = headers = _without(headers, b"content-length")
            headers += [(b"content-length", str(len(body)).encode()), (b"content-encoding", b"gzip")]
            return {"type": "http.response.body", "body": body}
        return message


def etag_of(body: bytes) -> bytes:
    """A strong ETag: equal bytes, equal tag."""
    return b'"' + urlsafe_b64encode(hashlib.sha256(body).digest()[:18]) + b'"'


def matches(known: bytes, tag: bytes) -> bool:
    """Whether a list of ETags (`If-None-Match`) has this one, in whatever encoding it was sent."""
    if known.strip() == b"*":
        return True
    for each in known.split(b","):
        one = each.strip().removeprefix(b"W/")
        if one == tag or (one.endswith(_GZIPPED) and one.removesuffix(_GZIPPED) + b'"' == tag):
            return True
    return False


def _without(headers: list[tuple[bytes, bytes]], dropped: bytes) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name != dropped]


async def _compressed(body: bytes) -> bytes:
    if len(body) < limits.GZIP_ASIDE_BYTES:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)  # zlib lets the loop go on meanwhile


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, level=1, wbits=16 + zlib.MAX_WBITS)
