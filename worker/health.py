"""Two small pages for whoever watches the process: `/livez` (it turns) and `/readyz` (it takes steps).

HTTP/1.1 by hand, because a worker image carries no web framework. Reads one request line, answers, closes; says
nothing that a stranger could use.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from agentflow.errors import Unavailable

_REQUEST_S = 2.0
_REQUEST_BYTES_MAX = 8 * 1024

# Each part of readiness by its name, and whether it is fine.
Parts = Callable[[], dict[str, bool]]


class HealthAddressTaken(Unavailable):
    code = "AF2311"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"The worker cannot listen for health checks on {address}: {reason}.",
            hint="Choose another address with AF_WORKER_HEALTH_LISTEN; port 0 takes a free one.",
        )


@asynccontextmanager
async def health_pages(address: str, parts: Parts) -> AsyncIterator[str]:
    """Serve until the block ends; gives the address with the port it really has."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, parts))
                await writer.drain()
        writer.close()

    host, _, port = address.rpartition(":")
    try:
        server = await asyncio.start_server(serve, host.strip("[]"), int(port), limit=_REQUEST_BYTES_MAX)
    except OSError as error:
        raise HealthAddressTaken(address, error.strerror or str(error)) from None
    async with server:
        bound = server.sockets[0].getsockname()[1]
        yield f"http://{host}:{bound}"


def _answer(head: bytes, parts: Parts) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _page(405, b"Method Not Allowed", {"status": "method not allowed"})
    match path:
        case b"/livez":
            return _page(200, b"OK", {"status": "ok"})
        case b"/readyz":
            checks = parts()
            if all(checks.values()):
                return _page(200, b"OK", {"status": "ok", "checks": checks})
            return _page(503, b"Service Unavailable", {"status": "not ready", "checks": checks})
        case _:
            return _page(404, b"Not Found", {"status": "not found", "pages": ["/livez", "/readyz"]})


def _page(status: int, words: bytes, content: object) -> bytes:
    body = msgspec.json.encode(content)
    head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, words, len(body)) + body
