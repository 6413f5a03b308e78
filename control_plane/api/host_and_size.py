"""What a request must pass before any route sees it: addressed to us, and not larger than we take."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentflow.errors import Rejected
from control_plane.api.errors import BodyTooLarge, problem_response

# Where the API listens on loopback only, a name that some page rebinds to 127.0.0.1 is none of ours.
_HOSTS = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class WrongHost(Rejected):
    code = "AF1010"

    def __init__(self) -> None:
        super().__init__(
            "This server does not answer to the host name in the request.",
            hint="Address it as localhost, 127.0.0.1 or [::1].",
        )


class Guards:
    def __init__(self, app: ASGIApp, body_bytes_max: int, *, any_host: bool = False) -> None:
        """`any_host`: served beyond this machine, under names that are its operator's business."""
        self._app = app
        self._any_host = any_host
        self._limit = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._any_host and _without_port(headers.get(b"host", b"")) not in _HOSTS:
            await problem_response(WrongHost())(scope, receive, send)
            return
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limit:
            await problem_response(BodyTooLarge(self._limit))(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise BodyTooLarge(self._limit)
            return message

        await self._app(scope, counted, send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Browsers let any page open a WebSocket to anywhere, and say which page it was."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        _, _, origin = headers.get(b"origin", b"").rpartition(b"://")
        if (self._any_host or _without_port(host) in _HOSTS) and origin in (b"", host):
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
