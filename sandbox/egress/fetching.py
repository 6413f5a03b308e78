"""One HTTP request through an attempt's socket to the egress proxy, for code that cannot open sockets itself.

Called by the `wasm` backend on behalf of a module, on the module's thread; the proxy decides as for everybody else.
"""

import http.client
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""


class _Egress(http.client.HTTPConnection):
    """A connection whose other end is the proxy. It speaks TLS for us, so `https` goes in the first line."""

    def __init__(self, path: str, timeout_s: float, opened: Callable[[socket.socket], None]) -> None:
        super().__init__("egress", timeout=timeout_s)
        self._path = path
        self._opened = opened

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        self._opened(self.sock)


def fetch(
    egress: str, asked: bytes, *, timeout_s: float, bytes_max: int, opened: Callable[[socket.socket], None]
) -> dict[str, Any]:
    """`{status, headers, body}`, or `{error}`. `opened` is told the socket, so that whoever waits can cut it."""
    try:
        request = msgspec.json.decode(asked, type=_Request)
        host = urlsplit(request.url).netloc
    except (msgspec.DecodeError, ValueError) as error:
        return {"error": f"the request is not understood: {error}"}
    connection = _Egress(egress, timeout_s, opened)
    try:
        connection.putrequest(request.method, request.url, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        body = request.body.encode()
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read(bytes_max + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return {"error": str(error) or type(error).__name__}
    finally:
        connection.close()
    if len(content) > bytes_max:
        return {"error": f"the answer has more than {bytes_max} bytes"}
    headers = {name.lower(): value for name, value in response.getheaders()}
    return {"status": response.status, "headers": headers, "body": content.decode(errors="replace")}
