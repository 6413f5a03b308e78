"""The head of an HTTP/1.1 request, read so strictly that two readers cannot differ about it. Pure.

Bytes in, a `RequestHead` and its `Destination` out, or `Refused`. What is sent on is written anew from here, never
copied, so nothing that was not understood gets past.
"""

import re
from typing import Literal

import msgspec

from sandbox.egress.policy import Refused, parse_authority

HEAD_BYTES_MAX = 64 * 1024
_HEADERS_MAX = 128

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_ABSOLUTE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^#]*)")
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)

Scheme = Literal["http", "https"]
_PORTS: dict[str, int] = {"http": 80, "https": 443}


class RequestHead(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        return [value for given, value in self.headers if given.lower() == name]


class Destination(msgspec.Struct, frozen=True):
    scheme: Scheme
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_head(raw: bytes) -> RequestHead:
    """`raw` is everything up to and with the empty line."""
    text = raw.decode("latin-1")
    if not text.endswith("\r\n\r\n"):
        raise _malformed("it has no end")
    lines = text[:-4].split("\r\n")
    if any("\n" in line or "\r" in line or "\0" in line for line in lines):
        raise _malformed("it holds a bare line break or NUL")
    if len(lines) - 1 > _HEADERS_MAX:
        raise _malformed("it has too many headers")
    match lines[0].split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0"] if _TOKEN.fullmatch(method) and _TARGET.fullmatch(target):
            return RequestHead(method, target, tuple(_header(line) for line in lines[1:]))
        case _:
            raise _malformed("its first line is not `METHOD target HTTP/1.1`")


def destination(head: RequestHead, claimed: tuple[Scheme, str, int] | None = None) -> Destination:
    """Where a request goes. `claimed` is what CONNECT, SOCKS5 or SNI said before: the request must say the same."""
    hosts = head.all("host")
    if len(hosts) > 1:
        raise _malformed("it has more than one Host")
    absolute = _ABSOLUTE.fullmatch(head.target)
    if absolute is not None:
        scheme = absolute["scheme"].lower()
        if scheme not in ("http", "https"):
            raise Refused("scheme_denied", f"The scheme {scheme!r} does not leave the sandbox.", "Use http or https.")
        if "@" in absolute["authority"]:
            raise Refused("name_invalid", "A destination with user information is not taken.")
        host, port = parse_authority(absolute["authority"], _PORTS[scheme])
        found = Destination("https" if scheme == "https" else "http", host, port, _path(absolute["path"]))
    elif head.target.startswith("/") and len(hosts) == 1:
        scheme = claimed[0] if claimed else "http"
        host, port = parse_authority(hosts[0], claimed[2] if claimed else _PORTS[scheme])
        found = Destination(scheme, host, port, head.target)
    else:
        raise _malformed("it names no destination")
    if hosts and parse_authority(hosts[0], found.port) != (found.host, found.port):
        raise Refused("host_mismatch", f"The request is for {found.host} and its Host header for another.")
    if claimed is not None and (found.scheme, found.host, found.port) != claimed:
        raise Refused("host_mismatch", f"The connection was opened to {claimed[1]} and the request is for another.")
    return found


def body_length(head: RequestHead) -> int | None:
    """How many bytes follow; None for chunks. Two ways of saying it at once is how requests are smuggled."""
    lengths, encodings = head.all("content-length"), head.all("transfer-encoding")
    if len(lengths) + len(encodings) > 1:
        raise _malformed("it says the length of its body twice")
    if encodings:
        if encodings[0].strip().lower() != "chunked":
            raise _malformed("its transfer encoding is not `chunked`")
        return None
    if not lengths:
        return 0
    if not re.fullmatch(r"[0-9]{1,15}", lengths[0]):
        raise _malformed("its Content-Length is not a number")
    return int(lengths[0])


def written(head: RequestHead, to: Destination, replaced: dict[str, str]) -> bytes:
    """The request as we send it: one per connection, our framing, and the `replaced` headers set by us alone."""
    named = {token.strip().lower() for value in head.all("connection") for token in value.split(",")}
    dropped = _HOP_BY_HOP | named | {name.lower() for name in replaced}
    length = body_length(head)
    headers = [("Host", to.authority)]
    headers += [(name, value) for name, value in head.headers if name.lower() not in dropped]
    headers += replaced.items()
    if length is None:
        headers.append(("Transfer-Encoding", "chunked"))
    elif length or head.all("content-length"):
        headers.append(("Content-Length", str(length)))
    headers.append(("Connection", "close"))
    lines = [f"{head.method} {to.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise _malformed(f"the header {name[:40]!a} is not well formed")
    return name, value


def _path(text: str) -> str:
    return text if text.startswith("/") else "/" + text


def _malformed(reason: str) -> Refused:
    return Refused("request_malformed", f"The request was not understood: {reason}.")
