"""The largest body that is taken, and the first that is not: whether its length was announced or came bit by bit."""

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from control_plane.api.errors import BodyTooLarge
from control_plane.api.host_and_size import Guards

LIMIT = 1_000


class Route:
    """Reads the whole body, as every route does."""

    def __init__(self) -> None:
        self.read = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self.read += len(message["body"])
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def in_parts(size: int) -> list[bytes]:
    return [b"x" * 100] * (size // 100) + [b"x" * (size % 100)]


async def status_of(parts: list[bytes], *, announced: int | None) -> tuple[int, int]:
    """The answer's status, and how much of the body a route has seen."""
    route, sent = Route(), list[Message]()
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting[-1]["more_body"] = False
    headers = [(b"host", b"localhost")]
    if announced is not None:
        headers.append((b"content-length", str(announced).encode()))

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    try:
        await Guards(route, LIMIT)(scope, receive, send)
    except BodyTooLarge:  # what the application's error answers turn into a 413
        return 413, route.read
    return sent[0]["status"], route.read


@pytest.mark.parametrize(("size", "status"), [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)])
async def test_a_body_of_an_announced_size_is_taken_up_to_the_limit_and_refused_unread_above(
    size: int, status: int
) -> None:
    assert await status_of(in_parts(size), announced=size) == (status, size if status == 200 else 0)


@pytest.mark.parametrize(("size", "status"), [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)])
@pytest.mark.parametrize("announced", [None, 1], ids=["in chunks", "announced as small"])
async def test_a_body_that_comes_bit_by_bit_is_taken_up_to_the_limit_and_no_byte_further(
    size: int, status: int, announced: int | None
) -> None:
    answered, read = await status_of(in_parts(size), announced=announced)

    assert answered == status
    assert read <= LIMIT
